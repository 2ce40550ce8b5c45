"""`parityscope serve`: the studies of a folder in a browser. Reads the folder, keeps an index of it, answers requests.

`finding` walks the folder, `summary` reads what a list shows of one study, `index` keeps that in SQLite, `guarding`
decides who may ask, `uploading` makes a comparison of what was sent, `answering` are the pages. What pages look like is
`report.studies`.
"""
