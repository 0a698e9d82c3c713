# Completion of nanobot for elvish: it asks the program itself.

use str

set edit:completion:arg-completer[nanobot] = {|@words|
  var answers = [(try { e:nanobot completions elvish -- $@words 2>/dev/null | from-lines } catch { })]
  if (> (count $answers) 0) {
    for answer $answers[1..] {
      var parts = [(str:split "\t" $answer)]
      if (> (count $parts) 1) {
        edit:complex-candidate $parts[0] &display=$parts[0]'  '$parts[1]
      } else {
        edit:complex-candidate $parts[0]
      }
    }
    if (!=s $answers[0] values) {
      edit:complete-filename $words[-1]
    }
  }
}
