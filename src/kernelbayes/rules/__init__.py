"""The rules of probability on embeddings: sum, chain and Bayes' rule, and density ratios."""
