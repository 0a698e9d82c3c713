//! Destructive commands in a directory with `victim/`, most of which no list of forbidden words would catch.

use super::fixture::{SandboxFixture, print_count};
use crate::requirements::{is_installed, skip};
use crate::situation::{User, available_users};
use std::path::{Path, PathBuf};

/// A program that may be missing, and the command, which runs beside `victim/`.
const COMMANDS: [(&str, &str); 71] = [
    // Quotes and abbreviations.
    ("", r#"r'm' -r -f victim"#),
    ("", r#""rm" "-rf" "victim""#),
    ("", r#"r\m -\r\f victim"#),
    ("", r#"rm -v -r -f victim"#),
    ("", r#"rm --recursive --force victim"#),
    ("", r#"rm --rec --fo victim"#),
    ("", r#"rm --force --recursive -- victim"#),
    ("", r#"rm victim -rf"#),
    ("", r#"rm -vfr ./victim/"#),
    ("", "rm \\\n-r -f victim"),
    ("", "rm\t--recursive\tvictim"),
    // Words built by the shell.
    ("", r#"tool=rm; how=-rf; $tool $how victim"#),
    ("", r#"x=r; y=m; $x$y -r$(echo f) victim"#),
    ("", r#"rm${IFS}-rf${IFS}victim"#),
    ("", r#"r${none}m -${none}rf victim"#),
    ("", r#"r$@m -rf victim"#),
    ("", r#"$(echo rm) -rf $(echo victim)"#),
    ("", r#"/bin/r[m] -rf vict?m"#),
    ("", r#"run() { "$1" -r -f victim; }; run rm"#),
    ("", r#"trap 'rm -rf victim' EXIT"#),
    ("", r#"eval r"m -r"f victim"#),
    ("bash", r#"bash -c '{rm,-rf,victim}'"#),
    ("bash", r#"bash -c "\$'\\x72\\x6d' -rf victim""#),
    ("bash", r#"bash -c "\$'\\162\\155' \$'\\055\\162\\146' victim""#),
    ("bash", r#"bash -c 'bash <<< "r""m -rf victim"'"#),
    ("bash", r#"bash -c '. /dev/stdin <<< "rm -rf victim"'"#),
    ("bash", r#"bash -c 'bash <(echo rm -rf victim)'"#),
    ("bash", r#"bash -c 'exec -a ls rm -rf victim'"#),
    ("bash", r#"d=$(mktemp -d); echo 'rm -rf victim' > $d/e; BASH_ENV=$d/e bash -c :"#),
    // Words from other sources.
    ("base64", r#"echo cm0gLXJmIHZpY3RpbQo= | base64 -d | sh"#),
    ("base64", r#"eval "$(echo cm0gLXJmIHZpY3RpbQ== | base64 --decode)""#),
    ("", r#"printf '\162\155 -\162\146 victim' | sh"#),
    ("rev", r#"echo mitciv fr- mr | rev | sh"#),
    ("", r#"echo 'ez -es ivpgvz' | tr a-z n-za-m | sh"#),
    ("", "sh <<end\nrm -rf victim\nend"),
    ("", r#"s=$(mktemp); printf 'r%s -rf victim' m > $s; sh $s"#),
    // Other programs that remove files.
    ("", r#"find victim -delete"#),
    ("", r#"find victim -depth -exec rm -r {} +"#),
    ("", r#"echo -rf victim | xargs rm"#),
    ("", r#"for f in victim/a victim/b/c; do unlink $f; done"#),
    ("shred", r#"shred -u victim/a"#),
    ("git", r#"d=$(mktemp -d); git init -q $d; git --git-dir=$d/.git --work-tree=. clean -qfdx"#),
    ("git", r#"git -c alias.z='!r''m -rf victim' z"#),
    ("tar", r#"tar --remove-files -cf /dev/null victim"#),
    (
        "tar",
        r#"tar -cf /dev/null --checkpoint=1 --checkpoint-action=exec='rm -rf victim' /etc/hostname"#,
    ),
    ("zip", r#"zip -qmr $(mktemp -d)/z victim"#),
    ("", r#"mv victim "$(mktemp -d)""#),
    // Programs that overwrite files.
    ("", r#"find victim -type f -exec truncate -s0 {} +"#),
    ("", r#"cp /dev/null victim/a"#),
    ("", r#"for f in victim/*; do : > $f; done"#),
    ("", r#"dd of=victim/a if=/dev/null status=none"#),
    ("", r#"tee victim/a < /dev/null"#),
    ("", r#"install -m0 /dev/null victim/a"#),
    ("", r#"ln -sf /dev/null victim/a"#),
    ("", r#"sort -o victim/a /dev/null"#),
    ("", r#"uniq /dev/null victim/a"#),
    ("", r#"find . -maxdepth 0 -fprintf victim/a gone"#),
    ("git", r#"git diff --no-index --output=victim/a /etc/hostname /etc/passwd"#),
    ("", r#"sed -i s/alive/gone/ victim/a"#),
    ("", r#"awk 'BEGIN { print "gone" > "victim/a" }'"#),
    ("gzip", r#"gzip victim/a"#),
    // Programs that run others, and interpreters.
    ("", r#"awk 'BEGIN { system("rm -r" "f victim") }'"#),
    ("", r#"echo x | sed '1e rm -rf victim'"#),
    ("", r#"env -S 'rm -rf victim'"#),
    ("", r#"timeout 5 nice rm -r victim"#),
    ("make", r#"make -s --eval 'all: ; @rm -rf victim' all"#),
    ("", r#"d=$(mktemp -d); cp /bin/rm $d/ls; $d/ls -rf victim"#),
    ("perl", r#"perl -MFile::Path -e 'File::Path::rmtree("victim")'"#),
    ("python3", r#"python3 -c 'import shutil; shutil.rmtree("victim")'"#),
    (
        "gcc",
        r#"d=$(mktemp -d); echo 'int unlink(const char*); int main(){return unlink("victim/a");}' > $d/x.c; gcc -w -o $d/x $d/x.c && $d/x"#,
    ),
    ("setsid", r#"setsid sh -c 'rm -rf victim' & sleep 0.2"#),
];

/// Creates a directory with a canary for each command.
fn create_victims(fixture: &SandboxFixture, directory: &Path) -> Vec<PathBuf> {
    let each = (0..COMMANDS.len()).map(|number| {
        let dir = directory.join(format!("case{number}"));
        fixture.write_file(&dir.join("victim/a"), "alive\n");
        fixture.write_file(&dir.join("victim/b/c"), "alive\n");
        dir
    });
    each.collect()
}

fn is_intact(dir: &Path) -> bool {
    ["victim/a", "victim/b/c"].iter().all(|name| {
        let path = dir.join(name);
        !path.is_symlink() && std::fs::read_to_string(path).is_ok_and(|text| text == "alive\n")
    })
}

fn build_commands(dirs: &[PathBuf]) -> Vec<String> {
    COMMANDS
        .iter()
        .zip(dirs)
        .map(|((_, command), dir)| format!("cd {}\n{command}", dir.display()))
        .collect()
}

/// The indexes of commands that can be tested here: those that are destructive without the sandbox.
fn destructive_commands(user: User) -> Vec<usize> {
    let fixture = SandboxFixture::new(user);
    let dirs = create_victims(&fixture, &fixture.outside_dir());
    let outputs = fixture.run_commands(&["--sandbox", "off"], &build_commands(&dirs));
    let mut deadly = Vec::new();
    for (number, (program, command)) in COMMANDS.iter().enumerate() {
        match (is_intact(&dirs[number]), program.is_empty() || is_installed(program)) {
            (false, _) => deadly.push(number),
            (true, false) => skip(&format!("`{program}` is not installed")),
            (true, true) => panic!("it destroys nothing: {command}\n{}", outputs[number]),
        }
    }
    deadly
}

#[test]
fn destructive_commands_destroy_only_writable_files() {
    for user in available_users() {
        let deadly = destructive_commands(user);
        for (case_flags, flags, is_inside) in [
            ("in a directory that is read", &[][..], true),
            ("outside of one that is written", &["--write"][..], false),
        ] {
            let fixture = SandboxFixture::new(user);
            let dir = if is_inside { fixture.story.dir() } else { fixture.outside_dir() };
            let dirs = create_victims(&fixture, &dir);
            let outputs = fixture.run_commands(flags, &build_commands(&dirs));
            let dead: Vec<String> = deadly
                .iter()
                .filter(|number| !is_intact(&dirs[**number]))
                .map(|number| format!("{}\n{}", COMMANDS[*number].1, outputs[*number]))
                .collect();
            print_count(&format!(
                "{user:?}, {case_flags}: {} of {} canaries alive",
                deadly.len() - dead.len(),
                deadly.len()
            ));
            assert!(dead.is_empty(), "{user:?}, {case_flags}:\n{}", dead.join("\n\n"));
        }
    }
}
