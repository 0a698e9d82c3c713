#!/bin/sh
# Tells what is wrong with skills: check.sh FOLDER-OR-SKILL.md...
# One line for each fault; status 1 if there was one, 2 if nothing was given.
set -u

[ $# -gt 0 ] || { echo "usage: check.sh FOLDER..." >&2; exit 2; }

bad=0
fault() { printf '%s: %s\n' "$file" "$1"; bad=1; }

for place in "$@"; do
    case $place in
        */SKILL.md | SKILL.md) file=$place ;;
        *) file=${place%/}/SKILL.md ;;
    esac
    if [ ! -f "$file" ]; then
        fault 'no such file'
        continue
    fi
    folder=$(cd "$(dirname "$file")" && pwd)
    cr=$(printf '\r')

    grep -q "$cr" "$file" && fault 'its lines end in CRLF'
    if [ "$(head -n 1 "$file" | tr -d '\r')" != --- ]; then
        fault 'its first line is not ---'
        continue
    fi
    end=$(tr -d '\r' < "$file" | awk 'NR > 1 && /^---[ \t]*$/ { print NR; exit }')
    if [ -z "$end" ]; then
        fault 'its front matter has no closing line ---'
        continue
    fi
    head=$(tr -d '\r' < "$file" | sed -n "2,$((end - 1))p")

    printf '%s\n' "$head" | grep -q "$(printf '\t')" && fault 'its front matter has a tab'

    name=$(printf '%s\n' "$head" | sed -n "s/^name:[ ]*//p" | sed "s/^[\"']//; s/[\"'][ ]*\$//" | head -n 1)
    [ -n "$name" ] || fault 'it has no name'
    [ -z "$name" ] || [ "$name" = "$(basename "$folder")" ] || fault "its name is $name, but its directory is not"
    printf '%s\n' "$name" | grep -Eq '^[a-z0-9]+(-[a-z0-9]+)*$' || fault 'its name may have only lower-case letters, digits and single hyphens'
    [ "${#name}" -le 64 ] || fault 'its name is longer than 64 characters'

    # With the lines below it, where it is folded.
    about=$(printf '%s\n' "$head" | awk '
        /^description:/ { on = 1; sub(/^description:[ ]*/, ""); print; next }
        on && /^[^ ]/ { exit }
        on { sub(/^ +/, ""); print }')
    plain=$(printf '%s' "$about" | tr '\n' ' ' | sed 's/^[|>][-+]* *//')
    [ -n "$plain" ] || fault 'it has no description'
    [ "$(printf '%s' "$plain" | wc -m)" -le 1024 ] || fault 'its description is longer than 1024 characters'
    case $about in
        \"* | \'* | \|* | \>*) ;;
        *': '* | *' #'*) fault 'its description has a colon or a # and is not quoted' ;;
    esac

    lines=$(($(wc -l < "$file") - end))
    [ "$lines" -le 500 ] || fault "its text has $lines lines: move rarely needed parts to other files"
    [ "$lines" -gt 0 ] || fault 'it has no text'

    # The files that it names are to be there.
    for named in $(sed "1,${end}d" "$file" | grep -Eo '(scripts|references|assets)/[A-Za-z0-9_./-]*[A-Za-z0-9]' | sort -u); do
        [ -e "$folder/$named" ] || fault "it names $named, which does not exist"
    done
    for script in "$folder"/scripts/*; do
        [ -f "$script" ] || continue
        [ "$(head -c 2 "$script")" = '#!' ] || fault "scripts/$(basename "$script") has no shebang line"
    done
done

[ "$bad" = 0 ] && echo "no errors found"
exit "$bad"
