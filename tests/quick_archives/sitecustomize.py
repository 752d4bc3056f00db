"""
Python imports this module when it starts, where this folder is in `PYTHONPATH`. Archives of models
are compressed at gzip's lowest level: at the default, the embedded biLM takes 12 s.
"""

import functools
import tarfile

gzopen = tarfile.TarFile.gzopen.__func__
tarfile.TarFile.gzopen = classmethod(functools.partial(gzopen, compresslevel=1))
