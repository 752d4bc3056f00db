#!/bin/sh
# Tokenized sentences of the embedded biLM's text, a file a source, and its vocabulary.
#   sh results/embedded_bilm/prepare.sh MODERN NOVELS TEXT
# MODERN and NOVELS are folders with train/ and heldout/: in MODERN a folder a source with a paragraph a line, in NOVELS
# hard-wrapped books. Writes TEXT/train/, TEXT/heldout/ and TEXT/vocabulary.txt. About 10 minutes on one core.
# A file that is there is whole, and is not made again.
set -eu
modern=$1 novels=$2 text=$3
for folder in "$modern/train" "$modern/heldout" "$novels/train" "$novels/heldout"; do
  [ -d "$folder" ] || { echo "error: $folder is not there, expected a folder of texts" >&2; exit 1; }
done
mkdir -p "$text/train" "$text/heldout"
for split in train heldout; do
  # Books of one publisher are one source.
  for source in $(ls "$modern/$split" | sed 's/^openstax-.*/openstax/; s/^se-.*/standard-ebooks/' | sort -u); do
    case $source in
      openstax) folders=openstax-* ;;
      standard-ebooks) folders=se-* ;;
      *) folders=$source ;;
    esac
    target=$text/$split/modern-$source.txt
    # shellcheck disable=SC2086
    [ -e "$target" ] || python -m elmo_plugin sentences --paragraph-lines "$modern/$split"/$folders/*.txt "$target"
  done
  for book in "$novels/$split"/*.txt; do
    target=$text/$split/novel-$(basename "$book")
    [ -e "$target" ] || python -m elmo_plugin sentences "$book" "$target"
  done
done
python -m elmo_plugin vocabulary "$text/train/*.txt" "$text/vocabulary.txt" --min-count 25 --force
