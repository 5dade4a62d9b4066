"""The story that ``kernelbayes demo`` tells: a robot that finds itself by what it sees."""
