"""From the brokers' counts to decisions: which topics deserve an OpenFlow tree (SAPS 2016, 3 and 3.3).

The path of a row: `intake` finds and checks the brokers' files; `features` sums them by window and topic; `model`
keeps, for each topic, a `forecast` and the shape of its traffic; `score` says what a tree would save, and cost;
`selection` chooses under the switches' budgets; `decisions` is the table that comes out, with reasons; `sink` hands it
to OFGate. All this is pure but `intake` and `sink`. `decider` runs it in one process without Spark, `job` on Spark: the
same functions, on numbers there and on arrays here, with the same result to the last bit.
"""
