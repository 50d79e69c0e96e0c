
# After `--` comes a program and its arguments: a command first, then files.
_tenure_or_program() {
    local at
    for ((at = 1; at < COMP_CWORD; at++)); do
        if [[ ${COMP_WORDS[at]} == -- ]]; then
            COMPREPLY=()
            if ((COMP_CWORD == at + 1)); then
                mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
            fi
            return 0
        fi
    done
    _tenure "$@"
}

complete -F _tenure_or_program -o bashdefault -o default tenure
