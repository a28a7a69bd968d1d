# Reads list.txt and the sources that it names.
#   awk -v root=TREE -v task=list edit.awk list.txt         name, file, tests and description of each, between tabs
#   awk -v root=TREE -v task=check edit.awk list.txt        fails unless each fits the tree
#   awk -v root=TREE -v task=NAME edit.awk list.txt         the text of that mutant's file with the bug in it
#
# A mutant is a line "== name", fields, and hunks as `diff -u` writes them but without line numbers ("@@" alone
# stands between two). The lines that a hunk starts from (' ' and '-') are in the file exactly once.

/^(#|$)/ { next }
/^== / { name = $2; order[++n] = name; if (name in hunks) problem("is there twice"); hunks[name] = 1; next }
/^(what|file|tests): / {
  key = $1; sub(/:$/, "", key)
  value = $0; sub(/^[a-z]+: */, "", value)
  field[name, key] = value
  next
}
/^@@$/ { hunks[name]++; next }
/^[-+ ]/ {
  h = name SUBSEP hunks[name]
  kind = substr($0, 1, 1); line = substr($0, 2)
  if (kind != "+") from[h, ++from_lines[h]] = line
  if (kind != "-") to[h, ++to_lines[h]] = line
  next
}
{ name = name ? name : "list.txt"; problem("has a line that is no field and no hunk: " $0) }

END {
  for (i = 1; i <= n; ++i) {
    name = order[i]
    if (task == "list") printf "%s\t%s\t%s\t%s\n", name, field[name, "file"], field[name, "tests"], field[name, "what"]
    else if (task == "check" || task == name) edit()
  }
  if (failed) exit 1
}

function problem(text) { printf "mutant %s %s\n", name, text >"/dev/stderr"; failed = 1 }

# Plants the bug in the lines of its file; they are printed unless all mutants are only checked.
function edit(  path, count, h, i, j, k, found, at) {
  if (!field[name, "what"] || !field[name, "tests"]) problem("lacks a field")
  path = root "/" field[name, "file"]
  count = 0
  while ((getline line <path) > 0) lines[++count] = line
  close(path)
  if (count == 0) { problem("names a file that is not there: " field[name, "file"]); return }
  for (h = 1; h <= hunks[name]; ++h) {
    k = name SUBSEP h
    found = 0
    for (i = 1; i + from_lines[k] - 1 <= count; ++i) {
      for (j = 1; j <= from_lines[k] && lines[i + j - 1] == from[k, j]; ++j) {}
      if (j > from_lines[k]) { at = i; ++found }
    }
    if (from_lines[k] == 0) found = 0
    if (found != 1) { problem("fits " field[name, "file"] " " found " times, not once (hunk " h ")"); return }
    shift = to_lines[k] - from_lines[k]
    if (shift > 0) for (i = count; i >= at + from_lines[k]; --i) lines[i + shift] = lines[i]
    if (shift < 0) for (i = at + from_lines[k]; i <= count; ++i) lines[i + shift] = lines[i]
    for (j = 1; j <= to_lines[k]; ++j) lines[at + j - 1] = to[k, j]
    count += shift
  }
  if (task != "check") for (i = 1; i <= count; ++i) print lines[i]
}
