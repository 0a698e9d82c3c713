//! `--attach`: which inputs it accepts and what the model receives.

use crate::requirements::require;
use crate::screen::Key;
use crate::server::{Response, says, sends};
use crate::story::{Story, write, write_program};
use base64::Engine;
use serde_json::{Value, json};
use std::io::{Cursor, Write};
use std::os::unix::fs::symlink;
use std::time::{Duration, UNIX_EPOCH};

/// The content of the last message that the model was sent.
fn last_content(story: &Story) -> Value {
    let requests = story.requests();
    let messages = requests.last().expect("the model was asked").messages();
    messages.last().unwrap()["content"].clone()
}

/// The text of the last content, without the runtime facts.
fn last_text(story: &Story) -> String {
    let content = last_content(story);
    let text = content.as_str().unwrap_or_else(|| {
        let last = content.as_array().and_then(|parts| parts.last());
        last.and_then(|part| part["text"].as_str()).unwrap()
    });
    let (text, _) = text.rsplit_once("\n\n[Runtime: ").unwrap();
    text.to_owned()
}

/// The first image of the last message: its media type and its bytes.
fn first_image(story: &Story) -> (String, Vec<u8>) {
    let url = last_content(story)[0]["image_url"]["url"].clone();
    let (kind, data) = url.as_str().unwrap().split_once(";base64,").unwrap();
    let bytes = base64::engine::general_purpose::STANDARD.decode(data);
    (kind.replace("data:", ""), bytes.unwrap())
}

/// A black PNG.
pub(crate) fn png_image(width_px: u32, height_px: u32) -> Vec<u8> {
    encode_png(width_px, height_px, png::ColorType::Rgb)
}

/// A PNG that is black, or transparent.
fn encode_png(width_px: u32, height_px: u32, colors: png::ColorType) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width_px, height_px);
    encoder.set_color(colors);
    let mut writer = encoder.write_header().unwrap();
    let pixels = vec![0; width_px as usize * height_px as usize * colors.samples()];
    writer.write_image_data(&pixels).unwrap();
    writer.finish().unwrap();
    bytes
}

/// A black JPEG.
fn jpeg_image(width_px: u16, height_px: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    let pixels = vec![0; 3 * usize::from(width_px) * usize::from(height_px)];
    let encoder = jpeg_encoder::Encoder::new(&mut bytes, 85);
    encoder.encode(&pixels, width_px, height_px, jpeg_encoder::ColorType::Rgb).unwrap();
    bytes
}

/// The width and the height of an image in pixels.
fn dimensions(image: &[u8]) -> (usize, usize) {
    let size = imagesize::blob_size(image).unwrap();
    (size.width, size.height)
}

/// The start of a PNG that declares these dimensions but contains no pixels.
fn png_header(width_px: u32, height_px: u32) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |kind: &[u8], data: &[u8]| {
        let mut crc = flate2::Crc::new();
        crc.update(kind);
        crc.update(data);
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend([kind, data].concat());
        bytes.extend(crc.sum().to_be_bytes());
    };
    let size = [width_px.to_be_bytes(), height_px.to_be_bytes()].concat();
    chunk(b"IHDR", &[&size[..], &[8, 6, 0, 0, 0]].concat());
    chunk(b"IDAT", &[]);
    bytes
}

#[test]
fn an_attachment_within_the_limit_is_sent_byte_for_byte() {
    let gif = b"GIF89a\x1e\0\x14\0\0\0\0;".to_vec();
    let webp = b"RIFF\x12\0\0\0WEBPVP8L\x06\0\0\0/\x1d\xc0\x04\0\0".to_vec();
    let images = [
        (png_image(30, 20), "image/png"),
        (jpeg_image(30, 20), "image/jpeg"),
        (gif.clone(), "image/gif"),
        (webp, "image/webp"),
    ];
    for (bytes, kind) in images {
        // The file name has no useful extension.
        let story = Story::new().file("a.txt", &bytes).script([says("ok")]);
        story.run(["agent", "-m", "x", "-a", "a.txt"]).stdout("ok\n");
        assert_eq!(first_image(&story), (kind.to_owned(), bytes));
    }
    // Only PNG and JPEG are scaled down.
    let large = [gif, vec![0; 6 << 20]].concat();
    let story = Story::new().file("a.gif", large);
    story
        .run(["agent", "-m", "x", "-a", "a.gif"])
        .status(65)
        .stderr_has("`a.gif` is an image that is too large, and only PNG and JPEG are scaled down");
}

#[test]
fn a_large_image_is_scaled_down() {
    let wide = png_image(9000, 90);
    let story = Story::new().file("a.png", wide).script([says("ok")]);
    story
        .run(["agent", "-m", "x", "-a", "a.png"])
        .stdout("ok\n")
        .stderr_has("`a.png` was scaled down from 9000×90 pixels");
    let (kind, bytes) = first_image(&story);
    assert_eq!(kind, "image/jpeg");
    assert_eq!(dimensions(&bytes), (1568, 16));

    // An image with transparency stays a PNG; only its byte size exceeds the limit.
    let mut heavy = encode_png(40, 30, png::ColorType::Rgba);
    heavy.resize(6 << 20, 0);
    let story = Story::new().stdin(heavy).script([says("ok")]);
    story
        .run(["agent", "-m", "x"])
        .stdout("ok\n")
        .stderr_has("standard input was scaled down from 40×30 pixels (6.0 MB) to 40×30 (");
    let (kind, bytes) = first_image(&story);
    assert_eq!(kind, "image/png");
    let decoder = png::Decoder::new(Cursor::new(bytes)).read_info().unwrap();
    assert_eq!(decoder.info().color_type, png::ColorType::Rgba);
}

#[test]
fn a_photograph_is_rotated_by_its_exif_orientation() {
    let plain = jpeg_image(9000, 90);
    let exif =
        b"\xff\xe1\0\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    let turned = [&plain[..2], exif, &plain[2..]].concat();
    let story = Story::new().file("a.jpg", turned).script([says("ok")]);
    let result = story.run(["agent", "-m", "x", "-a", "a.jpg"]).stdout("ok\n");
    result.stderr_has("to 16×1568");
    let (_, bytes) = first_image(&story);
    assert_eq!(dimensions(&bytes), (16, 1568));
}

/// The types of the parts of each user message of a request.
fn part_types(story: &Story, number: usize) -> Vec<Vec<String>> {
    let messages = story.requests()[number].messages();
    let users = messages.iter().filter(|message| message["role"] == "user");
    let types = |message: &Value| {
        let parts = message["content"].as_array().cloned().unwrap_or_default();
        let each = parts.iter();
        each.map(|part| part["type"].as_str().unwrap().to_owned())
            .filter(|kind| kind != "text")
            .collect()
    };
    users.map(types).collect()
}

#[test]
fn the_image_in_the_clipboard_is_attached() {
    let image = png_image(30, 20);
    let story = Story::new().file("shot.png", &image).script([says("A picture.")]);
    let shot = story.dir().join("shot.png");
    let program = format!(
        "#!/bin/sh\ncase \"$*\" in --list-types) cat {0}.types ;; '-t image/png') cat {0} ;; *) exit 9 ;; esac\n",
        shot.display()
    );
    write_program(&story.home().join("bin/wl-paste"), &program);
    let types = shot.with_file_name("shot.png.types");
    std::fs::write(&types, "text/plain\n").unwrap();
    let path = format!("{}:{}", story.home().join("bin").display(), story.path());
    let mut screen = story.screen(24, 80).env("PATH", &path).args(["repl"]);
    screen.until("lists").until_prompt("> ").type_("/paste").press(Key::Enter);
    screen.until("there is no image in the clipboard").until_prompt("> ");
    std::fs::write(&types, "text/html\nimage/png\n").unwrap();
    let directory = story.home().join(".nanobot/media/clipboard");
    std::fs::create_dir_all(&directory).unwrap();
    // The time of a story is 2026-01-02.
    let day = |day: u64| UNIX_EPOCH + Duration::from_secs(day * 24 * 3600);
    for (name, age_days) in [("old.png", 31), ("recent.png", 29)] {
        let file = std::fs::File::create(directory.join(name)).unwrap();
        file.set_modified(day(20_455 - age_days)).unwrap();
    }
    // It is added to the text.
    screen.type_to("what is", "> what is").press(Key::Ctrl('v'));
    screen.until("> what is @~/.nanobot/media/clipboard/").press(Key::Enter);
    screen.until("attached: ").until("A picture.").until_prompt("> ");
    assert_eq!(part_types(&story, 0), [["image_url".to_owned()]]);
    assert!(!directory.join("old.png").exists() && directory.join("recent.png").exists());
    screen.exit_with_ctrl_d();
}

#[test]
fn an_image_is_sent_again_while_its_file_is_unchanged() {
    let image = png_image(30, 20);
    let other = png_image(20, 30);
    let story = Story::new().file("a.png", &image).file("b.png", &image);
    story.server().script((0..5).map(|_| says("ok")));
    let run = |phrases: &[&str]| drop(story.run([&["agent"], phrases].concat()).stdout("ok\n"));
    run(&["-m", "look", "-a", "a.png", "-a", "b.png"]);
    // Another directory does not matter.
    std::fs::create_dir(story.dir().join("sub")).unwrap();
    run(&["-m", "again", "-C", "sub"]);
    let images = vec!["image_url".to_owned(); 2];
    assert_eq!(part_types(&story, 1), [images, vec![]]);
    let url = |number: usize| {
        let first = &story.requests()[number].messages()[1];
        first["content"][0]["image_url"]["url"].clone()
    };
    assert_eq!(url(0), url(1));
    std::fs::write(story.dir().join("a.png"), &other).unwrap();
    run(&["-m", "changed"]);
    assert_eq!(part_types(&story, 2)[0], ["image_url"]);
    assert!(story.requests()[2].raw.contains("[image: a.png]"));
    std::fs::remove_file(story.dir().join("b.png")).unwrap();
    run(&["-m", "gone"]);
    assert_eq!(part_types(&story, 3)[0], Vec::<String>::new());
    std::fs::write(story.dir().join("a.png"), &image).unwrap();
    run(&["-m", "back"]);
    assert_eq!(part_types(&story, 4)[0], ["image_url"]);
    // A model that does not accept images gets the placeholder.
    let story = story.set("models", json!({ "scripted": { "images": false } }));
    story.server().script([says("ok")]);
    story.run(["agent", "-m", "blind"]).stdout("ok\n");
    assert_eq!(part_types(&story, 5)[0], Vec::<String>::new());
}

#[test]
fn unusable_images_are_rejected() {
    let check = |bytes: Vec<u8>, message: &str| {
        let story = Story::new().file("a.png", bytes);
        story.run(["agent", "-m", "x", "-a", "a.png"]).status(65).stderr_has(message);
        assert!(story.requests().is_empty());
    };
    check(b"\x89PNG\r\n\x1a\n".to_vec(), "`a.png` is an image that cannot be read");
    check(png_header(9000, 10), "`a.png` is an image that cannot be read");
    check(png_header(60_000, 60_000), "60000×60000 pixels, above the limit of 100 million");
    check(png_header(u32::MAX, u32::MAX), "above the limit of 100 million");
    let mut large = png_image(9, 9);
    large.resize(33 << 20, 0);
    check(large, "longer than 32.0 MB");
}

#[test]
fn a_directory_is_attached_as_a_listing_with_its_text_files() {
    let story = Story::new()
        .file("../outside", "SECRET")
        .file("src/b.txt", "bee\n")
        .file("src/a/deep.md", "# Deep\n</file>\n")
        .file("src/.gitignore", "*.log\nbuild/\n")
        .file("src/x.log", "SECRET")
        .file("src/build/y", "SECRET")
        .file("src/.env", "SECRET")
        .file("src/c.bin", b"\0\x01")
        .file("src/latin", b"caf\xe9")
        .file("src/large", "x".repeat(300 << 10))
        .file("src/z.txt", b"\xff\xfeh\0i\0");
    symlink(story.dir().join("../outside"), story.dir().join("src/link")).unwrap();
    symlink(story.dir().join(".."), story.dir().join("src/up")).unwrap();
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        story.dir().join("src/pipe"),
        rustix::fs::Mode::from_raw_mode(0o600),
    )
    .unwrap();
    let left_out = "file contents omitted: 1 over the total limit of 256.0 KB; 2 binary";
    let expect = format!(
        "look\n\n<directory name=\"src\">\n\
         a/deep.md  15 B\n\
         b.txt  4 B\n\
         c.bin  2 B, binary\n\
         large  300.0 KB, omitted\n\
         latin  4 B, binary\n\
         link  symbolic link, not followed\n\
         pipe  not a regular file\n\
         up  symbolic link, not followed\n\
         z.txt  6 B\n\
         ({left_out})\n\
         \n<file-2 name=\"a/deep.md\">\n# Deep\n</file>\n</file-2>\n\
         \n<file name=\"b.txt\">\nbee\n</file>\n\
         \n<file name=\"z.txt\">\nhi\n</file>\n\
         </directory>"
    );
    for _ in 0..2 {
        story.server().script([says("ok")]);
        story
            .run(["agent", "-m", "look", "-a", "src", "--ephemeral"])
            .stdout("ok\n")
            .stderr(&format!("nanobot: `src`: {left_out}\n"));
        assert_eq!(last_text(&story), expect);
    }
}

#[test]
fn a_directory_in_a_repository_respects_parent_gitignore_files() {
    let story = Story::new()
        .file(".git/HEAD", "")
        .file(".gitignore", "*.log\n")
        .file("sub/a.log", "SECRET")
        .file("sub/a", "seen")
        .script([says("ok")]);
    story.run(["agent", "-m", "x", "-a", "sub"]).stdout("ok\n");
    assert!(last_text(&story).contains("seen") && !story.requests()[0].raw.contains("SECRET"));
    std::fs::create_dir(story.dir().join("empty")).unwrap();
    let run = || story.run(["agent", "-m", "x", "-a", "empty"]).status(66);
    run().stderr_has("`empty` is empty");
    write(&story.dir().join("empty/b.log"), b"SECRET");
    run().stderr_has("`empty` contains only hidden and ignored files");
}

/// A file that the user names is the user's word; of a directory, no file was named.
#[test]
fn files_of_a_directory_that_a_rule_denies_to_read_are_left_out() {
    let story = Story::new()
        .set("tools.deny", json!(["read_file(priv/*)"]))
        .file("priv/letter.txt", "SECRET")
        .file("sub/old-letter.md", "SECRET")
        .file("open.txt", "seen");
    let run = |flags: &[&str]| {
        story.server().script([says("ok")]);
        let result = story.run([&["agent", "--ephemeral", "-m", "look"], flags].concat());
        (result.stdout("ok\n").error_text(), story.last_request().raw)
    };
    let (notice, sent) = run(&["-a", ".", "--deny", "grep(*letter*)"]);
    assert!(sent.contains("seen") && !sent.contains("SECRET"), "{sent}");
    assert!(!sent.contains("letter.txt"), "{sent}");
    let left_out = "`.`: file contents omitted: 2 denied by a rule, not listed";
    assert_eq!(notice, format!("nanobot: {left_out}\n"));
    let (_, sent) = run(&["-a", "."]);
    assert!(sent.contains("old-letter.md") && !sent.contains("letter.txt"), "{sent}");
    let (notice, sent) = run(&["-a", "priv/letter.txt", "--deny", "read_file(*letter*)"]);
    assert!(sent.contains("SECRET") && notice.is_empty(), "{notice}{sent}");
    story
        .run(["agent", "-m", "look", "-a", "priv"])
        .status(66)
        .stderr_has("`priv` contains only hidden, ignored and denied files");
}

#[test]
fn a_large_directory_is_truncated_with_a_notice() {
    let mut story = Story::new().script([says("ok")]);
    for number in 0..2001 {
        story = story.file(&format!("many/{number:04}"), "");
    }
    story
        .run(["agent", "-m", "x", "-a", "many"])
        .stdout("ok\n")
        .stderr_has("all after the first 2000, not listed");
    assert!(last_text(&story).contains("1999  0 B") && !last_text(&story).contains("2000  0 B"));
}

/// A story with this script as `pdftotext`.
fn story_with_pdftotext(script: &str) -> Story {
    let story = Story::new();
    let program = story.home().join("bin/pdftotext");
    write_program(&program, &format!("#!/bin/sh\n{script}\n"));
    let path = format!("{}:/usr/bin:/bin", story.home().join("bin").display());
    story.env("PATH", &path).env("OPENAI_API_KEY", "SECRET")
}

#[test]
fn a_pdf_is_attached_as_its_text() {
    let pdf = b"%PDF-1.4\nwhatever";
    let script = "[ \"$1 $2 $3 $4 $6\" = '-q -layout -enc UTF-8 -' ] && head -c 8 \"$5\" && printf '\\f' && env";
    let story = story_with_pdftotext(script).file("a", pdf).script([says("ok")]);
    story.run(["agent", "-m", "x", "-a", "a"]).stdout("ok\n");
    assert!(last_text(&story).starts_with("x\n\n<file name=\"a\">\n%PDF-1.4\n"));
    assert!(!story.requests()[0].raw.contains("SECRET"));
    // Piped input can be a PDF, too.
    let story = story_with_pdftotext("echo words").stdin(pdf).script([says("ok")]);
    story.run(["agent", "-m", "x"]).stdout("ok\n");
    assert_eq!(last_text(&story), "x\n\n<stdin>\nwords\n</stdin>");

    let check = |script: &str, message: &str| {
        let story = story_with_pdftotext(script).file("a", pdf);
        let result = story.run(["agent", "-m", "x", "-a", "a"]);
        result.status(65).stderr_has(message);
    };
    check("exit 1", "`a` is a damaged or encrypted PDF");
    check("exit 99", "`a` is a PDF that `pdftotext` cannot read");
    check("kill -9 $$", "`a` is a PDF that `pdftotext` cannot read");
    check("printf '\\f\\n'", "`a` is a PDF without text");
    check("head -c 20000000 /dev/zero", "the text of `a` is longer than 16 MiB");
    let story = story_with_pdftotext("").env("PATH", "/nowhere").file("a", pdf);
    story.run(["agent", "-m", "x", "-a", "a"]).status(65).stderr_has(
        "`pdftotext`, which reads its text, is not installed\n  try: install poppler-utils",
    );
    let story = story_with_pdftotext("sleep 60").file("a", pdf);
    story
        .run(["agent", "-m", "x", "-a", "a", "--timeout", "0.5"])
        .status(124)
        .stderr_has("--timeout");
}

#[test]
fn a_pdf_is_converted_by_the_real_pdftotext() {
    if !require("pdftotext") {
        return;
    }
    let draw = "BT /F1 24 Tf 72 700 Td (Buy milk) Tj ET";
    let pdf = format!(
        "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n\
         2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n\
         3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>endobj\n\
         4 0 obj<</Length {}>>stream\n{draw}\nendstream endobj\n\
         5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n",
        draw.len()
    );
    let story = Story::new().file("a.pdf", pdf).script([says("ok")]);
    story.run(["agent", "-m", "x", "-a", "a.pdf"]).stdout("ok\n");
    assert!(last_text(&story).contains("Buy milk"));
}

#[test]
fn standard_input_can_be_an_attachment() {
    let story = Story::new().stdin("piped\n").file("a", "file\n");
    let story = story.script([says("ok")]);
    story.run(["agent", "-m", "x", "-a", "a", "-a", "-"]).stdout("ok\n");
    let expect = "x\n\n<file name=\"a\">\nfile\n</file>\n\n<stdin>\npiped\n</stdin>";
    assert_eq!(last_text(&story), expect);
    let check = |arguments: &[&str], message: &str| {
        let result = story.run([&["agent"], arguments].concat());
        result.status(2).stderr_has(message);
    };
    check(&["-a", "-"], "must be given with `-m`");
    check(&["-m", "-", "-a", "-"], "must be given with `-m`");
    check(&["-m", "x", "-a", "-", "--no-stdin"], "`--no-stdin`");
    check(&["-m", "x", "-a", "-", "-a", "-"], "once");
}

/// A story that may fetch from its own server, and the server's URL.
fn story_with_pages() -> (Story, String) {
    let story = Story::new().env("NANOBOT_TEST_FETCH", "loopback");
    let base = format!("http://127.0.0.1:{}", story.server().port);
    (story, base)
}

#[test]
fn a_page_is_attached_as_its_text() {
    let (story, base) = story_with_pages();
    let url = format!("{base}/a#part");
    let check = |answer: Response, expect: &str| {
        story.server().script([sends(answer), says("ok")]);
        let result = story.run(["agent", "-m", "x", "-a", &url, "--ephemeral"]);
        result.stdout("ok\n");
        assert_eq!(last_text(&story), format!("x\n\n<page name=\"{url}\">\n{expect}\n</page>"));
    };
    check(Response::text(200, "text/plain", "<b>plain</b>"), "<b>plain</b>");
    let html = "<title>T</title><script>no</script><p>caf\u{e9} &amp; <b>more</b>";
    check(Response::text(200, "text/html; charset=utf-8", html), "T\n\ncafé & more");
    let mut latin = Response::text(200, "text/html", "");
    latin.chunks = vec![b"<meta charset=iso-8859-1>caf\xe9".to_vec()];
    check(latin.clone(), "café");
    latin.chunks = vec![b"caf\xe9".to_vec()];
    latin.headers = vec![("content-type".into(), "text/plain; charset=latin1".into())];
    check(latin, "café");
}

#[test]
fn images_and_pdfs_can_be_attached_by_url() {
    let (story, base) = story_with_pages();
    let bytes = png_image(3, 2);
    let mut answer = Response::text(200, "text/html", "");
    answer.chunks = vec![bytes.clone()];
    story.server().script([sends(answer), says("ok")]);
    let url = format!("{base}/a");
    story.run(["agent", "-m", "x", "-a", &url]).stdout("ok\n");
    assert_eq!(first_image(&story), ("image/png".to_owned(), bytes));
    let stored = story.session("cli_direct.jsonl")[1]["content"].clone();
    let expect = json!({ "type": "text", "text": format!("[image: {url}]") });
    assert_eq!(stored[0], expect);
}

#[test]
fn redirects_are_followed_up_to_a_limit() {
    let (story, base) = story_with_pages();
    let on = |to: &str| Response::text(302, "text/plain", "").header("location", to);
    let page = Response::text(200, "text/plain", "there");
    story.server().script([sends(on("/b?c=d")), sends(page), says("ok")]);
    let url = format!("{base}/a");
    story.run(["agent", "-m", "x", "-a", &url]).stdout("ok\n");
    let expect = format!("<page name=\"{url} (at {base}/b?c=d)\">\nthere\n</page>");
    assert!(last_text(&story).ends_with(&expect), "{}", last_text(&story));

    let (story, base) = story_with_pages();
    let url = format!("{base}/a");
    story.server().always(sends(on("/a")));
    story.run(["agent", "-m", "x", "-a", &url]).status(69).stderr_has("more than 5 redirects");
    assert_eq!(story.requests().len(), 6);

    for to in [
        "http://10.0.0.1/",
        "https://10.0.0.1/",
        "//169.254.169.254/latest/meta-data/",
        "http://1.1.1.1/",
        "http://[::ffff:10.0.0.1]/",
    ] {
        let (story, base) = story_with_pages();
        let story = story.script([sends(on(to))]);
        let url = format!("{base}/a");
        let result = story.run(["agent", "-m", "x", "-a", &url]).status(77);
        result.stderr_has(if to.contains("1.1.1.1") {
            "does not use `https`"
        } else {
            "is not a public address"
        });
    }
}

#[test]
fn private_addresses_are_not_fetched() {
    let story = Story::new();
    let port = story.server().port;
    // A proxy would reach the private address on our behalf.
    let proxy = format!("http://127.0.0.1:{port}");
    let story = story.env("HTTPS_PROXY", &proxy).env("ALL_PROXY", &proxy);
    let check = |url: &str, message: &str| {
        story
            .run(["agent", "-m", "x", "-a", url])
            .status(77)
            .stderr_has(message)
            .stderr_has("curl -s URL");
    };
    let public = "not a public address";
    check(&format!("https://localhost:{port}/"), public);
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "0",
        "10.1.2.3",
        "100.64.0.1",
        "169.254.169.254",
        "192.0.2.1",
        "224.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[fd00:ec2::254]",
        "[fe80::1]",
    ] {
        check(&format!("https://{host}:{port}/"), public);
    }
    check(&format!("HTTPS://127.0.0.1:{port}/"), public);
    for host in ["127.0.0.1", "1.1.1.1", "no-such-host.invalid"] {
        check(&format!("http://{host}:{port}/"), "does not use `https`");
    }
    assert!(story.requests().is_empty());
}

#[test]
fn unusable_pages_are_rejected() {
    let check = |answer: Response, status: i32, message: &str| {
        let (story, base) = story_with_pages();
        let story = story.script([sends(answer)]);
        let url = format!("{base}/a");
        let result = story.run(["agent", "-m", "x", "-a", &url]);
        result.status(status).stderr_has(message);
    };
    let page = |status| Response::text(status, "text/plain", "words");
    check(page(404), 66, "no such page: `");
    check(page(503), 69, "the server responded with status 503");
    check(page(200).ending(crate::server::Ending::Disconnect), 69, "fetch");
    check(Response::text(200, "text/plain", "a\0b"), 65, "is binary");
    let mut long = page(200);
    long.chunks = vec![vec![b'x'; 1 << 20]; 21];
    check(long, 65, "longer than 20 MiB");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&vec![0; 30 << 20]).unwrap();
    let mut bomb = page(200).header("content-encoding", "gzip");
    bomb.chunks = vec![gzip.finish().unwrap()];
    check(bomb, 65, "longer than 20 MiB");

    let (story, base) = story_with_pages();
    let url = format!("{base}/a");
    story
        .run(["agent", "-m", "x", "-a", &url, "--offline"])
        .status(69)
        .stderr_has("`--offline` does not allow fetching");
    for url in ["https://", "https://a b/", "https:///x"] {
        let result = story.run(["agent", "-m", "x", "-a", url]).status(2);
        result.stderr_has("invalid URL");
    }
}
