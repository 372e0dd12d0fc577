class Seq2Seq:
    pass
