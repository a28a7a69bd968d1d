# Doxygen's input filter of headers: turns the project's plain comments into documentation comments.
#
# - The comment before #pragma once documents the file, and the class of the file's name if it has no comment.
# - A comment on lines of its own documents what follows; one after a declaration documents that.
# - // --- Title --- begins a group of members.
# - Comments in function bodies and after closing braces stay as they are.
# Text is escaped, except in `code`. Examples of code are indented.

# The line without strings, character literals and its comment. Sets `comment_at`: where a comment begins, or 0.
function code_of(line,    i, c, quote, code) {
  comment_at = 0
  for (i = 1; i <= length(line); i++) {
    c = substr(line, i, 1)
    if (quote != "") {
      if (c == "\\") i++
      else if (c == quote) quote = ""
    } else if (c == "\"" || (c == "'" && substr(line, i - 1, 1) !~ /[0-9a-f]/)) {
      quote = c
    } else if (substr(line, i, 2) == "//") {
      comment_at = i
      break
    } else {
      code = code c
    }
  }
  return code
}

# Escapes what Doxygen would read as a command, a tag or an entity, outside of `code`, which may span lines.
function escaped(text,    parts, n, i, result) {
  n = split(text, parts, "`")
  for (i = 1; i <= n; i++) {
    if (!in_span) gsub(/[\\@<>#%&]/, "\\\\&", parts[i])
    result = result (i > 1 ? "`" : "") parts[i]
    if (i < n) in_span = !in_span
  }
  return result
}

# A line of a comment as Markdown. After an empty line, lines indented by three spaces or more are a block of code, which
# in Markdown needs four more.
function documentation(marker, text) {
  if (text ~ /^   / && (in_code || after_empty)) {
    in_code = 1
    return marker "    " text
  }
  after_empty = text ~ /^ *$/
  if (!after_empty) in_code = 0
  return marker escaped(text)
}

# What an opening brace on this line opens: a scope of declarations, or a function's body.
function is_scope(code) {
  return code ~ /(^|[^a-z_])(namespace|struct|class|enum|union)([^a-z_].*)?\{/ && code !~ /\) *(const)? *(noexcept)? *\{/ || \
    code ~ /extern *\{/
}

function track(code,    i, c) {
  for (i = 1; i <= length(code); i++) {
    c = substr(code, i, 1)
    if (c == "{") bodies[++depth] = !is_scope(head substr(code, 1, i))
    if (c == "}" && depth > 0 && --depth < section_depth) close_section()
    head = c ~ /[{};]/ ? "" : head c
  }
  head = head " "
}

# A group ends where the next one begins, and with the scope that it is in.
function open_section(title) {
  close_section()
  section_depth = depth
  print "/// \\name " title "\n///@{"
}
function close_section() {
  if (section_depth) print "///@}"
  section_depth = 0
}

function is_named_after_file(name,    file) {
  file = FILENAME
  sub(/.*\//, "", file)
  sub(/\.h$/, "", file)
  gsub(/_/, "", file)
  return tolower(name) == file
}

function in_body(    i) {
  for (i = 1; i <= depth; i++) if (bodies[i]) return 1
  return 0
}

# Doxygen does not include a file twice. Prints the rows of the op table that this header gives a meaning.
function print_rows(    line, row, macro) {
  while ((getline line < "dispatch/ops.def") > 0) {
    if (line ~ /^BRRR_/) {
      macro = line
      sub(/\(.*/, "", macro)
      row = ""
    }
    if (!(macro in defined) || line ~ /^(#|\/\/|$)/) continue
    row = row line
    if (is_balanced(row)) {
      print row
      row = macro = ""
    }
  }
  close("dispatch/ops.def")
}

function is_balanced(text,    copy) {
  copy = text
  return gsub(/\(/, "", text) == gsub(/\)/, "", copy)
}

/^#define BRRR_/ {
  macro = $2
  sub(/\(.*/, "", macro)
  defined[macro] = 1
}
/^#undef BRRR_/ { delete defined[$2] }
/^#include <brrr\/dispatch\/ops.def>/ {
  print_rows()
  for (macro in defined) delete defined[macro]
  next
}

/^#pragma once/ { past_head = 1 }

!past_head && /^\/\// {
  if (!has_head) print "//! \\file"
  has_head = 1
  print documentation("//!", substr($0, 3))
  head_comment[++head_lines] = substr($0, 3)
  next
}

# Before `class Linear` of linear.h without a comment of its own.
/^(class|struct) [A-Za-z]+/ && !after_comment && is_named_after_file($2) {
  in_code = after_empty = 0
  for (line = 1; line <= head_lines; line++) print documentation("///", head_comment[line])
}

{
  code = code_of($0)
  own_line = comment_at && code ~ /^ *$/
  after_comment = own_line
  if (own_line) {
    text = substr($0, comment_at + 2)
    if (!in_body() && text ~ /^ --- .* ---$/) open_section(substr(text, 6, length(text) - 9))
    else if (in_body()) print
    else if (comment_at == trailing_at) print substr($0, 1, comment_at - 1) documentation("///<", text)
    else {
      trailing_at = 0
      print substr($0, 1, comment_at - 1) documentation("///", text)
    }
    next
  }
  in_span = in_code = after_empty = 0
  trailing_at = 0
  was_in_body = in_body()
  if (code !~ /^ *#/) track(code)
  if (comment_at && !was_in_body && code ~ /[;,)] *$/ && code !~ /^ *(struct|class) [A-Za-z]+; *$/ && code !~ /^#/) {
    trailing_at = comment_at
    print substr($0, 1, comment_at - 1) documentation("///<", substr($0, comment_at + 2))
  } else {
    print
  }
}
