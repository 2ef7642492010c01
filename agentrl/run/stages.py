"""Stages of a noise key, so that training, cloning, evaluation and the rest draw different noise."""

TRAIN, CLONE, EVALUATE, VOCABULARY, BRANCH, GUIDE = range(6)
