#!/bin/sh
# Begins a skill: new.sh FOLDER NAME [DESCRIPTION] makes FOLDER/NAME/SKILL.md, and prints its path.
set -eu

[ $# -ge 2 ] || { echo "usage: new.sh FOLDER NAME [DESCRIPTION]" >&2; exit 2; }
folder=$1 name=$2 about=${3:-what it does, and when to use it}

if ! printf '%s\n' "$name" | grep -Eq '^[a-z0-9]+(-[a-z0-9]+)*$' || [ "${#name}" -gt 64 ]; then
    echo "$name: invalid name: lower-case letters, digits and single hyphens, at most 64 characters" >&2
    exit 2
fi
if [ -e "$folder/$name" ]; then
    echo "$folder/$name already exists" >&2
    exit 1
fi

# In single quotes everything stands for itself, but for the quote.
quoted=$(printf '%s' "$about" | tr '\n' ' ' | sed "s/'/''/g")
mkdir -p "$folder/$name"
cat > "$folder/$name/SKILL.md" <<END
---
name: $name
description: '$quoted'
---

# $name

1. Inspect.
2. Act.
3. Verify the result, and say how.

## What goes wrong

- The error message, and how to fix it.
END
printf '%s\n' "$folder/$name/SKILL.md"
