//! The template for the SKILL.md of a new skill. No I/O.

/// The description that the author replaces.
pub const TEMPLATE_DESCRIPTION: &str =
    "what it does and when to use it; the model decides by this line only";

/// Returns a SKILL.md that the author completes.
pub fn skill_template(name: &str, description: Option<&str>) -> String {
    // JSON strings are valid YAML, whatever they contain.
    let description = serde_json::Value::String(description.unwrap_or(TEMPLATE_DESCRIPTION).into());
    let title = name.replace('-', " ");
    format!(
        "---\nname: {name}\ndescription: {description}\n# The requirements; remove what does not apply.\n\
         # metadata:\n#   nanobot:\n#     requires:\n#       bins: [jq]\n#       env: [SOME_TOKEN]\n---\n\n# {title}\n\n\
         Describe the steps, as for a colleague who has the skills but does not know this environment:\n\n\
         1. Inspect: `command --that-changes-nothing`.\n2. Act: `command --with-the-flags-that-matter`.\n\
         3. Verify the result, and say how.\n\n## Common errors\n\n- The error message, and how to fix it.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::skill_template;
    use crate::skill::{RequirementChecker, parse};
    use nanobot_os::env::Env;

    #[test]
    fn the_template_has_no_warnings() {
        let env: Env = [("PATH", "/bin")].into_iter().collect();
        let check = |description: Option<&str>, expect: &str| {
            let skill = parse(
                "my-tea",
                &skill_template("my-tea", description),
                &RequirementChecker::new(&env),
            );
            assert_eq!(skill.warnings, [""; 0]);
            assert!(skill.description.starts_with(expect) && skill.is_available());
            assert!(skill.body.starts_with("# my tea\n"));
        };
        check(None, "what it does");
        check(Some("Makes: \"tea\" # hot\\"), "Makes: \"tea\" # hot\\");
    }
}
