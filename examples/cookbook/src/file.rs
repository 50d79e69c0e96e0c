//! Read, change and write a file.

use std::error::Error;
use std::path::PathBuf;
use std::{fs, io};

use tenure::{Client, FencingToken};

/// A document in a directory, one file for each version. A version is written
/// by linking its file, which the file system does whole or not at all, and for
/// one writer only: *compare and set*.
#[derive(Clone, Debug)]
pub struct Document(pub PathBuf);

/// The result of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It is in the document.
    Yes,
    /// Another client wrote since we read: nothing was written. Begin again.
    Overtaken,
}

impl Document {
    /// The newest version, and its number; an empty one at first.
    pub fn read(&self) -> io::Result<(u64, String)> {
        let mut newest = 0;
        for entry in fs::read_dir(&self.0)? {
            let name = entry?.file_name().into_string().unwrap_or_default();
            newest = newest.max(name.parse().unwrap_or(0));
        }
        let text = match newest {
            0 => String::new(),
            _ => fs::read_to_string(self.0.join(newest.to_string()))?,
        };
        Ok((newest, text))
    }

    /// Writes the version after `read`, unless there is one.
    fn write(
        &self,
        read: u64,
        text: &str,
        fence: FencingToken,
    ) -> io::Result<Changed> {
        // A fence is granted once, so no two drafts have the same name.
        let draft = self.0.join(format!("draft-{fence}"));
        fs::write(&draft, text)?;
        let linked = fs::hard_link(&draft, self.0.join((read + 1).to_string()));
        fs::remove_file(draft)?;
        match linked {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Ok(Changed::Overtaken)
            }
            result => result.map(|()| Changed::Yes),
        }
    }
}

/// Changes the document. The lock keeps editors from working in vain; the link
/// keeps the document right.
pub async fn edit<F: Future<Output = String>>(
    client: &Client,
    document: &Document,
    change: impl FnOnce(String) -> F,
) -> Result<Changed, Box<dyn Error + Send + Sync>> {
    let guard = client.lock("document").acquire().await?;
    let (number, text) = document.read()?;
    // If this process is paused here, it is overtaken, and `write` reports it.
    let text = change(text).await;
    Ok(document.write(number, &text, guard.fence())?)
}
