"""Decides from the brokers' counts which topics get an OpenFlow tree (SAPS 2016, 3 and 3.3).

A row of counts passes these steps:

1. `intake` finds and checks the brokers' files.
2. `features` sums the rows by window and topic.
3. `model` keeps a `forecast` of each topic and the shape of its traffic.
4. `score` computes what a tree would save and cost.
5. `selection` chooses topics under the switches' budgets.
6. `decisions` writes the resulting table with reasons.
7. `sink` sends the table to OFGate.

All steps are pure but `intake` and `sink`. `decider` runs them in one process without Spark; `job` runs them on Spark.
Both call the same functions, `decider` with numbers and `job` with arrays, and their results agree to the last bit.
"""
