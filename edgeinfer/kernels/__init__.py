"""Turn programs into results: one folder a backend, all behind `backend.py`."""
