"""The pages of the dashboard: rendered on the server, and usable without scripts.

`routes` lists them. `rendering` fills the templates, `changes` describes the forms that change something, and the other
modules have the handlers of one group of pages each. No module has logic of the queue: pages show the documents of the
operations core, and call its methods.
"""
