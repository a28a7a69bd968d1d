# What zsh offers after a line: completion.zsh PROGRAM FOLDER LINE. An interactive zsh in a pseudo-terminal completes the
# line; each name that is offered and fits what is typed is printed, FILES for files.
zmodload zsh/zpty || exit 1
zpty shell "cd ${(q)2} && exec zsh -f -i"
zpty -w shell "PS1= PS2= RPS1=; unsetopt zle prompt_cr prompt_sp; stty -echo; setopt zle
autoload -Uz compinit && compinit -D -u
eval \"\$(${(q)1} completion zsh)\"
compadd() { local -a fit; builtin compadd -O fit \"\$@\"; offered+=(\$fit) }
_files() { offered+=(FILES) }
list-offered() { offered=(); zle complete-word; print -r -- \"OFFERED \$offered END\"; BUFFER= }
zle -N list-offered; zle -C complete-word complete-word _main_complete; bindkey '^X' list-offered; print REA''DY"
zpty -r shell out '*READY*' || exit 1
zpty -n -w shell "$3"$'\C-x'
zpty -r shell out '*OFFERED*END*' || exit 1
zpty -d shell
if [[ $out == *completion:* ]]; then print -r -- $out; exit 1; fi
print -r -- ${${out##*OFFERED }%% END*}
