# git for commands that may change only a part of a working tree. What would change files outside of that part stops here,
# before it changes any: git itself would stop in the middle. The lines above set `git`, the program; `top`, the working
# tree; `part`, the part in it; and `mark`, a file that is made when something is stopped.

# Lists the files outside of the part that differ.
differing() {
    "$git" diff --name-only "$@" -- ':(top)' ":(top,exclude,literal)$part" 2> /dev/null
}

# Lists the files outside of the part that git with these arguments would change.
changed_files() (
    set -f
    while :; do
        case $1 in
            -C) cd -- "$2" || exit; shift 2 ;;
            -c | --config-env | --namespace | --attr-source | --super-prefix) shift 2 ;;
            --git-dir* | --work-tree* | --bare) exit ;;
            -*) shift ;;
            *) break ;;
        esac
    done
    case $1 in
        bisect | checkout | cherry-pick | merge | pull | rebase | reset | revert | stash | switch) command=$1 ;;
        *) exit ;;
    esac
    shift
    # Options without a subcommand are those of `push`.
    case $command$1 in stash-*) set -- push "$@" ;; esac
    [ "$("$git" rev-parse --show-toplevel 2> /dev/null)" = "$top" ] || exit
    names='' options=' ' paths=''
    for word do
        case $word in
            --) paths=yes; break ;;
            -) names="$names @{-1}" ;;
            -*) options="$options$word " ;;
            *) names="$names $word" ;;
        esac
    done
    # A rebase or a pick that is under way goes on, or is given up.
    case $options in
        *' --continue '* | *' --abort '* | *' --skip '* | *' --quit '* | *' --edit-todo '*) exit ;;
    esac
    case $command$options in
        checkout*' -f '* | checkout*' --force '* | switch*' -f '* | switch*' --discard-changes '* | reset*' --hard '*) differing HEAD ;;
    esac
    set -- $names
    case $command in
        stash)
            entry=${2:-0}
            case $entry in *[!0-9]*) ;; *) entry="stash@{$entry}" ;; esac
            case ${1:-push} in
                pop | apply) differing "$entry^1" "$entry" ;;
                push | save) [ "$paths" ] || differing HEAD ;;
            esac
            case ${1:-push}$options in
                push*' -u '* | push*' --include-untracked '* | push*' -a '* | push*' --all '*)
                    [ "$paths" ] || (cd -- "$top" && "$git" ls-files -o --exclude-standard -- . ":(exclude,literal)$part") ;;
            esac ;;
        cherry-pick | revert)
            for name do
                case $name in *..*) differing "$name" ;; *) differing "$name^!" ;; esac
            done ;;
        pull)
            "$git" fetch -q "$@" > /dev/null 2>&1 && differing HEAD...FETCH_HEAD ;;
        merge)
            for name in "${@:-@{upstream\}}"; do differing "HEAD...$name"; done ;;
        rebase)
            for name in "${@:-@{upstream\}}"; do
                case $options in
                    ' ' | ' -q ') "$git" merge-base --is-ancestor "$name" HEAD 2> /dev/null && continue ;;
                esac
                differing HEAD "$name"
            done ;;
        *)
            case $command$paths$options in
                checkout*' -b '* | checkout*' -B '* | checkout*' --orphan '*) ;;
                # Paths follow the commit.
                checkoutyes*) exit ;;
                checkout*) [ $# -lt 2 ] || exit ;;
                reset*' --hard '* | reset*' --keep '* | reset*' --merge '*) ;;
                # The files stay as they are.
                reset*) exit ;;
            esac
            for name do differing HEAD "$name"; done ;;
    esac
)

first=$(changed_files "$@" | head -n 1)
[ "$first" ] || exec "$git" "$@"
: > "$mark"
echo "git: stopped before it changed anything: '$top/$first' would change, and this run may change '$top/$part' only" >&2
exit 128
