"""Word count in Pathway.

The source runs Python code for each record. The count is a Rust reducer of Pathway, which gives Pathway an advantage.
"""

import json
import sys

import pathway as pw

COMMIT_MS = 100


class Words(pw.io.python.ConnectorSubject):
    def __init__(self, words, passes):
        super().__init__()
        self.words, self.passes = words, passes

    def run(self):
        for _ in range(self.passes):
            for word in self.words:
                self.next(word=word)


class Schema(pw.Schema):
    word: str


def main():
    words_file, passes, result_file = sys.argv[1:4]
    with open(words_file) as file:
        words = json.load(file)
    table = pw.io.python.read(Words(words, int(passes)), schema=Schema, autocommit_duration_ms=COMMIT_MS)
    counted = table.groupby(table.word).reduce(table.word, count=pw.reducers.count())
    counts = {}

    def changed(key, row, time, is_addition):
        if is_addition:
            counts[row["word"]] = row["count"]

    pw.io.subscribe(counted, changed)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    with open(result_file, "w") as file:
        json.dump({"counts": counts}, file)


if __name__ == "__main__":
    main()
