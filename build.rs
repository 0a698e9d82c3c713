//! Links the program statically at a fixed address, where the compiler and the C library allow it.
//!
//! A turn takes about a millisecond, and a dynamic position-independent program spends half of that before `main`: the
//! loader maps the shared libraries and applies thousands of relocations. Cargo can ask for a static program only with
//! flags that `cargo install` does not read, so the linker is given them here.
//!
//! Also tells the program about its build, for `--version --verbose`.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The libraries that `std` links dynamically, and what takes the place of each.
const LIBRARIES: [(&str, &[&str]); 3] = [
    ("c", &["libc.a", "libgcc_eh.a", "libgcc.a"]),
    ("gcc_s", &["libgcc_eh.a", "libgcc.a", "libc.a"]),
    ("m", &["libm.a", "libc.a"]),
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC_LINKER");
    println!("cargo::rustc-check-cfg=cfg(static_glibc)");
    let variable = |name| env::var(name).unwrap_or_default();
    println!("cargo::rustc-env=NANOBOT_BUILD_TARGET={}", variable("TARGET"));
    if variable("PROFILE") == "release"
        && let Some(commit) = find_commit()
    {
        println!("cargo::rustc-env=NANOBOT_BUILD_COMMIT={commit}");
    }
    let is_native = variable("HOST") == variable("TARGET");
    let features = variable("CARGO_CFG_TARGET_FEATURE");
    if variable("CARGO_CFG_TARGET_OS") != "linux"
        || variable("CARGO_CFG_TARGET_ENV") != "gnu"
        || features.split(',').any(|feature| feature == "crt-static")
        || !is_native
    {
        return Ok(());
    }
    let compiler = env::var_os("RUSTC_LINKER").map_or_else(|| "cc".into(), PathBuf::from);
    let folder = PathBuf::from(variable("OUT_DIR"));
    let Some(libc) = find_static_libc(&compiler, &folder)? else {
        return Ok(());
    };
    println!("cargo::rustc-env=NANOBOT_BUILD_LIBC=glibc {libc}");
    for (library, archives) in LIBRARIES {
        let Some(archives) = find_archives(&compiler, archives) else {
            return Ok(());
        };
        // A linker script under the name of the shared library, which the linker finds before that.
        let script = format!("GROUP ( {} )\n", archives.join(" "));
        fs::write(folder.join(format!("lib{library}.so")), script)?;
    }
    println!("cargo::rustc-cfg=static_glibc");
    for argument in ["-static", "-no-pie", &format!("-L{}", folder.display())] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    Ok(())
}

/// The commit that is built: `NANOBOT_COMMIT`, or what `cargo package` recorded. The repository is not asked, since each
/// commit would then be a new build.
fn find_commit() -> Option<String> {
    const RECORD: &str = ".cargo_vcs_info.json";
    println!("cargo::rerun-if-env-changed=NANOBOT_COMMIT");
    let given = env::var("NANOBOT_COMMIT").ok();
    given.or_else(|| {
        let text = fs::read_to_string(RECORD).ok()?;
        let (_, rest) = text.split_once(r#""sha1": ""#)?;
        Some(rest.split('"').next()?.to_owned())
    })
}

/// The version of the static C library; `None` if it is not installed, or the compiler makes no static program.
fn find_static_libc(compiler: &Path, folder: &Path) -> std::io::Result<Option<String>> {
    let (source, program) = (folder.join("probe.c"), folder.join("probe"));
    let code = "#include <gnu/libc-version.h>\n#include <stdio.h>\nint main(void) { puts(gnu_get_libc_version()); }\n";
    fs::write(&source, code)?;
    let compilation = Command::new(compiler)
        .args(["-static", "-no-pie", "-o"])
        .args([&program, &source])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !compilation.is_ok_and(|status| status.success()) {
        return Ok(None);
    }
    let version = Command::new(&program).output()?.stdout;
    Ok(Some(String::from_utf8_lossy(&version).trim().to_owned()))
}

/// The absolute paths of libraries of the compiler or of the C library, unless one is missing or has a space.
fn find_archives(compiler: &Path, names: &[&str]) -> Option<Vec<String>> {
    let find = |name: &&str| {
        let mut command = Command::new(compiler);
        let output = command.arg(format!("-print-file-name={name}")).output();
        let path = String::from_utf8(output.ok()?.stdout).ok()?;
        let path = path.trim();
        (path.starts_with('/') && !path.contains(' ')).then(|| path.to_owned())
    };
    names.iter().map(find).collect()
}
