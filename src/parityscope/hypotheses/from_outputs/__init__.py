"""What a network may have computed instead, where nothing but its outputs is known.

* `reference` : the reference's tensors on a few samples, and what the outputs become when one step gives other results;
* `residual`  : what is to be explained, as one vector over outputs and samples, and how much of it a response explains;
* `sites`     : the steps where an edit can stand, each a stretch, so that the generators for layers serve here too;
* `predicting`: one sweep backwards tells what every edit does to the outputs, to first order;
* `families`  : edits with one number to be fitted, whose number the adjoints give;
* `ordering`  : which guess is evaluated next: kinds by turns, the best prediction and the shortest first;
* `looking`   : the ways to look, in their order, and what part of the time each has;
* `trying`    : exact evaluation of these, within a budget of estimated seconds;
* `telling`   : which of those that explain all cannot be told apart, and what to record next.
"""
