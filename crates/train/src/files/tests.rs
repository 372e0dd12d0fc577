use super::*;
use crate::temp_dir::TempDir;

/// The sorted names of the files in a folder.
fn names(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.join("")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn an_output_file_is_created_or_replaced() {
    let folder = TempDir::new();
    let path = folder.join("out.txt");
    // An unrelated file of the user.
    folder.write("out.txt.partial", "user");
    for content in ["first", "second and longer", "3"] {
        write_output(&path, content.as_bytes()).unwrap();
        assert_eq!(text(&path), content);
    }
    assert_eq!(names(&folder), ["out.txt", "out.txt.partial"]);
    assert_eq!(text(&folder.join("out.txt.partial")), "user");
    let path = folder.join("");
    let error = write_output(&path, b"text").unwrap_err().to_string();
    assert!(error.contains(path.to_str().unwrap()), "{error}");
}

#[test]
fn a_failed_write_keeps_the_old_file() {
    let folder = TempDir::new();
    let path = folder.write("out.txt", "old");
    let all = {
        let injection = faults::FaultInjection::new(&folder.join(""), None);
        write_output(&path, b"old").unwrap();
        injection.operations()
    };
    assert_eq!(all.len(), 5, "{all:?}");
    for (index, operation) in all.iter().enumerate() {
        let injection = faults::FaultInjection::new(&folder.join(""), Some(index));
        let error = write_output(&path, b"new").unwrap_err().to_string();
        drop(injection);
        assert!(error.ends_with(faults::INJECTED), "{operation}: {error}");
        // The last operation syncs the folder, after the new file is in place.
        let expected = if index == 4 { "new" } else { "old" };
        assert_eq!(text(&path), expected, "{operation}");
        assert_eq!(names(&folder), ["out.txt"], "{operation}");
    }
}

#[cfg(unix)]
mod unix {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn an_output_file_keeps_its_permissions() {
        let folder = TempDir::new();
        let path = folder.write("out.txt", "old");
        let link = folder.join("link");
        symlink("out.txt", &link).unwrap();
        for (mode, path) in [(0o600, &path), (0o754, &path), (0o640, &link)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            write_output(path, b"new").unwrap();
            let found = fs::metadata(path).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode);
        }
    }

    #[test]
    fn symlinks_are_followed_and_kept() {
        let folder = TempDir::new();
        let target = folder.write("target.txt", "old");
        let [link, chain, dangling] = ["link", "chain", "dangling"].map(|name| folder.join(name));
        symlink("target.txt", &link).unwrap();
        symlink(&link, &chain).unwrap();
        symlink("new.txt", &dangling).unwrap();
        for link in [&link, &chain] {
            write_output(link, link.display().to_string().as_bytes()).unwrap();
            assert_eq!(text(&target), link.display().to_string());
        }
        write_output(&dangling, b"new").unwrap();
        assert_eq!(text(&folder.join("new.txt")), "new");
        for link in [link, chain, dangling] {
            assert!(link.is_symlink());
        }
        let cycle = folder.join("cycle");
        symlink("cycle", &cycle).unwrap();
        write_output(&cycle, b"new").unwrap_err();
        assert!(cycle.is_symlink());
    }

    #[test]
    fn devices_and_pipes_are_written_to() {
        let folder = TempDir::new();
        // A link, because a bug here would replace the device for the whole system.
        let null = folder.join("null");
        symlink("/dev/null", &null).unwrap();
        write_output(&null, b"text").unwrap();
        assert!(null.is_symlink());
        let kind = fs::metadata("/dev/null").unwrap().file_type();
        assert!(kind.is_char_device());

        let pipe = folder.join("pipe");
        let status = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(status.unwrap().success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || text(&pipe)
        });
        write_output(&pipe, b"through the pipe").unwrap();
        assert_eq!(reader.join().unwrap(), "through the pipe");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());

        let socket = folder.join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        write_output(&socket, b"text").unwrap_err();
        assert!(fs::metadata(&socket).unwrap().file_type().is_socket());
        assert_eq!(names(&folder), ["null", "pipe", "socket"]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn file_descriptors_are_appended_to() {
        use std::os::fd::AsRawFd;

        let folder = TempDir::new();
        let path = folder.write("log.txt", "before\n");
        let file = File::options().append(true).open(&path).unwrap();
        for (name, prefix) in [("proc", "/proc/self/fd"), ("dev", "/dev/fd")] {
            let descriptor = format!("{prefix}/{}", file.as_raw_fd());
            write_output(Path::new(&descriptor), format!("{name}\n").as_bytes()).unwrap();
        }
        assert_eq!(text(&path), "before\nproc\ndev\n");
    }
}

#[test]
fn incomplete_files_are_recognised_by_name() {
    for (name, expected) in [
        ("run.json", "run.json"),
        ("run.json.partial", "run.json"),
        ("average.safetensors.12-3.tmp", "average.safetensors"),
        ("notes.12-x.tmp", "notes.12-x.tmp"),
        ("notes.-.tmp", "notes.-.tmp"),
        ("notes.tmp", "notes.tmp"),
    ] {
        assert_eq!(without_suffix(name), expected);
    }
    let name = temporary(Path::new("out.txt"));
    assert_eq!(without_suffix(name.to_str().unwrap()), "out.txt");
}
