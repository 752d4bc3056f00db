"""
To HDF5: which sentences run together (`batches`), their vectors (`vectors`), what an interrupted
run leaves behind (`journal`), the files (`layouts`), and the run itself (`extract`).
"""
