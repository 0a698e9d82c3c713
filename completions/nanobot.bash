# Completion of nanobot for bash: it asks the program itself.
#
# bash parts words at colons too. So the program gets the line as it is typed, and the piece that its answer replaces.
_nanobot() {
    local kind='' answer
    COMPREPLY=()
    while IFS= read -r answer; do
        case $kind in
            '') kind=$answer ;;
            *) COMPREPLY+=("$answer") ;;
        esac
    done < <(command nanobot completions bash -- "${COMP_LINE:0:COMP_POINT}" "$2" 2>/dev/null)
    case $kind in
        files) compopt -o default 2>/dev/null ;;
        dirs) compopt -o dirnames 2>/dev/null ;;
    esac
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/:,] ]]; then
        compopt -o nospace 2>/dev/null
    fi
    return 0
}

complete -o nosort -F _nanobot nanobot 2>/dev/null || complete -F _nanobot nanobot
