//! Pages in a real browser, for tests of several crates.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Chromium on the `PATH`.
pub fn find() -> Option<PathBuf> {
    const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
    let path = std::env::var_os("PATH")?;
    let mut files = std::env::split_paths(&path).flat_map(|folder| NAMES.map(|n| folder.join(n)));
    files.find(|file| file.is_file())
}

/// DOM of a page after its scripts.
///
/// # Errors
///
/// If the browser does not start, or the page writes to the console.
pub fn dom(browser: &Path, page: &Path) -> Result<String, String> {
    // Separate profiles, since browsers that share one wait for each other.
    let profile = page.with_extension(format!("profile-{}", std::process::id()));
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu"])
        .args(["--enable-logging=stderr", "--log-level=0", "--dump-dom"])
        // Timers run at once.
        .args(["--virtual-time-budget=5000", "--window-size=1500,1100"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .map_err(|error| format!("{}: {error}", browser.display()))?;
    let _ = std::fs::remove_dir_all(&profile);
    let log = String::from_utf8_lossy(&output.stderr);
    // Chromium logs console messages with this tag.
    if let Some(message) = log.lines().find(|line| line.contains("CONSOLE")) {
        return Err(message.to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Opens a page of `width` x 1,000 pixels, runs a script after its own, and returns the results
/// that the script passes as an array to `report`, joined by `; `.
///
/// `page` is written, and a second page next to it: windows cannot be as narrow as a frame.
///
/// # Errors
///
/// As [`dom`]; if a file cannot be written, or nothing is reported.
pub fn visit(
    browser: &Path,
    page: &Path,
    html: &str,
    script: &str,
    width: u32,
) -> Result<String, String> {
    let write = |path: &Path, text: &str| {
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    let report = "const report = (results) => parent.postMessage(results.join(\"; \"), \"*\");";
    let script = format!("<script>\n{report}\n{script}</script>\n</body>");
    write(page, &html.replace("</body>", &script))?;
    let name = page.file_name().unwrap_or_default().to_string_lossy();
    let frame = format!(
        "<!doctype html><meta charset=\"utf-8\"><link rel=\"icon\" href=\"data:,\">\
         <pre id=\"results\"></pre><script>addEventListener(\"message\", (event) => {{ \
         document.querySelector(\"pre\").textContent = event.data }})</script>\
         <iframe src=\"{name}\" width=\"{width}\" height=\"1000\" style=\"border:0\"></iframe>"
    );
    let framed = page.with_extension("framed.html");
    write(&framed, &frame)?;
    let dom = dom(browser, &framed)?;
    let results = dom.split_once("<pre id=\"results\">");
    let results = results.and_then(|(_, rest)| rest.split_once("</pre>"));
    match results {
        Some((results, _)) if !results.is_empty() => Ok(results.to_owned()),
        _ => Err(format!("nothing was reported: {dom}")),
    }
}
