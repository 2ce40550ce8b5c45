"""What error is to be expected, of each tensor, in each arithmetic; and the grade of a measured one.

* `expecting`  : formats and the FP32 noise floor, as worlds of one pass (`metering`; `error_model`, `variances` and
  `disturbing` for the floor);
* `grades`     : measured and expected errors -> grades;
* `forecasting`: what each format will do to a model, of which there is no candidate (`lockstep`, `ranges`,
  `parameters`; `words` says it);
* `drawing`    : the error of outputs of few numbers, drawn several times;
* `records`, `forecasts`: what is to be expected, and what was found.

The evaluator comes with all but `grades` and the records; an output that agrees to the last bit needs none.
"""
