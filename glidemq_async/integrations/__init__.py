"""Integrations for web frameworks, one module each. Shared connections open with the web app and close with it.

Nothing is imported here, because each module needs its framework. Its ImportError names the package to install.
"""
