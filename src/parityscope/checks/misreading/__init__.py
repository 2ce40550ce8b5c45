"""What became of right outputs on their way to whoever reads them: arrays in, a way to read them out; no network is run.

`orders`: which output is bound where; `readings`: as which format or layout bytes are read; `remains`: what an
earlier call left behind; `permuted`: which axis or element stands where; `processing`: what was computed of them afterwards.
"""
