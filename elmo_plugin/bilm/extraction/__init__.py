"""
The parts of `elmo_plugin.bilm.extract`: which sentences run together (`batches`), what an
interrupted run leaves behind (`journal`), and the HDF5 files (`layouts`).
"""
