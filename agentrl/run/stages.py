"""The numbers of the stages. They are part of noise keys, so that each stage of a run draws different noise."""

TRAIN, CLONE, EVALUATE, VOCABULARY, BRANCH, GUIDE = range(6)
