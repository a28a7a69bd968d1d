# Doxygen's input filter of Markdown: headings get identifiers, and links to headings and documents become references.
# The identifier of a heading is that of GitHub, after the name of its document: "ops_from-pytorch".

# The name of a document by its path: "ops" for docs/ops.md.
function name_of(path) {
  sub(/.*\//, "", path)
  sub(/\.md$/, "", path)
  return tolower(path)
}

function slug(heading) {
  heading = tolower(heading)
  gsub(/[^a-z0-9 _-]/, "", heading)
  gsub(/ /, "-", heading)
  return heading
}

# Rewrites [text](path.md#anchor) and [text](#anchor).
function with_references(line,    result, target, anchor, name) {
  while (match(line, /\]\([^):]*\)/)) {
    target = substr(line, RSTART + 2, RLENGTH - 3)
    anchor = ""
    if (target ~ /#/) {
      anchor = target
      sub(/^[^#]*#/, "", anchor)
      sub(/#.*/, "", target)
    }
    result = result substr(line, 1, RSTART + 1)
    if (target == "" || target ~ /\.md$/) {
      name = target == "" ? name_of(FILENAME) : name_of(target)
      result = result "@ref " name (anchor == "" ? "" : "_" anchor) ")"
    } else {
      result = result target ")"
    }
    line = substr(line, RSTART + RLENGTH)
  }
  return result line
}

# Doxygen shows the backslash of a \| in `code`, which Markdown's tables need. Such code becomes <tt>, where it does not.
function with_bars(line,    result, span) {
  while (match(line, /`[^`]*`/)) {
    span = substr(line, RSTART, RLENGTH)
    if (span ~ /\\\|/) {
      span = substr(span, 2, length(span) - 2)
      gsub(/--|[<&]/, "\\\\&", span)
      span = "<tt>" span "</tt>"
    }
    result = result substr(line, 1, RSTART - 1) span
    line = substr(line, RSTART + RLENGTH)
  }
  return result line
}

/^```/ { fenced = !fenced }
fenced || /^    / || /^```/ { print; next }
/^#/ { gsub(/`/, "") }
/^# / { print $0 " {#" name_of(FILENAME) "}"; next }
/^##+ / {
  heading = $0
  sub(/^#+ /, "", heading)
  print $0 " {#" name_of(FILENAME) "_" slug(heading) "}"
  next
}
# Doxygen reads no `code` in bold text.
/^- \*\*/ {
  sub(/\*\*/, "<b>")
  sub(/\*\*/, "</b>")
}
{ print /^\|/ ? with_bars(with_references($0)) : with_references($0) }
