"""The comparison of docs/comparison.md, one file each: subjects, rivals, and what judges all of them alike.

* `subjects`    : models, samples and budgets; `encoders` : encoders that are made to fail;
* `environment` : the throwaway environment that other people's tools run in;
* `autocast`, `ort_float16`, `onnxconverter` : those tools;
* `prefix`, `ddmin`, `halving`, `ranking`    : methods of search, replayed on the switchable simulation by `replaying`;
* `counting`    : what a typed model keeps in FP32; `judging` : how far off it is; `table` : rows as Markdown.
"""
