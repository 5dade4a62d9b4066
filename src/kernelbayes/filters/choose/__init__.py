"""What a filter chooses from data: bandwidths, ridges and intervals, judged on left-out parts."""
