"""The runtime on Celery: settings, the app, and the tasks that workers run."""
