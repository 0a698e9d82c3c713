# Completion of nanobot for PowerShell: it asks the program itself. Where it answers nothing, PowerShell offers files.

Register-ArgumentCompleter -Native -CommandName nanobot -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)

    $words = @($commandAst.CommandElements |
        Where-Object { $_.Extent.EndOffset -lt $cursorPosition -or ($_.Extent.EndOffset -eq $cursorPosition -and -not $wordToComplete) } |
        ForEach-Object { if ($_ -is [System.Management.Automation.Language.StringConstantExpressionAst]) { $_.Value } else { $_.Extent.Text } })
    # An empty word would be left out by older releases: the last one always begins with an equal sign.
    $current = '=' + $wordToComplete.Trim("'", '"')
    $answers = @(& nanobot completions powershell -- @words $current 2>$null)
    $answers | Select-Object -Skip 1 | ForEach-Object {
        $value, $help = $_ -split "`t", 2
        $written = if ($value -match '^[\w./:=@%+-]+$') { $value } else { "'" + $value.Replace("'", "''") + "'" }
        [System.Management.Automation.CompletionResult]::new($written, $value, 'ParameterValue', $(if ($help) { $help } else { $value }))
    }
}
