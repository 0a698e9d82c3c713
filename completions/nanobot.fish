# Completion of nanobot for fish: it asks the program itself.

function __nanobot_complete
    set -l current (commandline --current-token)
    set -l answers (command nanobot completions fish -- (commandline --current-process --tokenize --cut-at-cursor) "$current" 2>/dev/null)
    set -q answers[2]; and printf '%s\n' $answers[2..-1]
    switch "$answers[1]"
        case files dirs
            set -l flag (string match --regex -- '^--[^=]*=' "$current")
            set -l typed (string replace --regex -- '^--[^=]*=' '' "$current")
            for found in (complete --do-complete "'' $typed")
                if test "$answers[1]" = files; or string match --quiet -- '*/' (string split --fields 1 \t -- "$found")
                    printf '%s\n' "$flag$found"
                end
            end
    end
end

complete --command nanobot --no-files --keep-order --arguments '(__nanobot_complete)'
