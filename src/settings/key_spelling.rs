//! The spellings of keys and names: camelCase in the file, snake_case in values. Pure.

/// Converts `max_tokens` to `maxTokens`. A name without underscores is unchanged.
pub fn camel_case(name: &str) -> String {
    let mut words = name.split('_').filter(|word| !word.is_empty());
    let mut camel = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().into_iter().flat_map(char::to_uppercase));
        camel.push_str(letters.as_str());
    }
    camel
}

/// Converts `openaiCodex` to `openai_codex`, the form of provider names in values.
pub fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 2);
    for letter in name.chars() {
        if letter.is_uppercase() {
            if !snake.is_empty() && !snake.ends_with('_') {
                snake.push('_');
            }
            snake.extend(letter.to_lowercase());
        } else {
            snake.push(if letter == '-' { '_' } else { letter });
        }
    }
    snake
}
