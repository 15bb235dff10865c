"""The Lab as a folder of static files: `site.write`, or `python -m attention.demo`."""
