//! An editor is paused past its lease between reading and writing.

use cookbook_example::file::{Changed, Document, edit};
use tenure::Client;
use tenure::memory::MemoryDriver;

#[tokio::test(start_paused = true)]
async fn no_change_is_lost() {
    let (driver, dir) = (MemoryDriver::new(), tempfile::tempdir().unwrap());
    let document = Document(dir.path().to_owned());
    let (anna, bert) = (
        Client::new(driver.another_client()),
        Client::new(driver.another_client()),
    );
    assert_eq!(
        edit(&anna, &document, async |text| text + "one ").await.unwrap(),
        Changed::Yes
    );
    let paused = async |text: String| {
        driver.faults().expire("document").unwrap();
        assert_eq!(
            edit(&bert, &document, async |text| text + "two ").await.unwrap(),
            Changed::Yes
        );
        text + "lost"
    };
    assert_eq!(
        edit(&anna, &document, paused).await.unwrap(),
        Changed::Overtaken
    );
    assert_eq!(document.read().unwrap(), (2, String::from("one two ")));
    assert_eq!(
        edit(&anna, &document, async |text| text + "three").await.unwrap(),
        Changed::Yes
    );
    assert_eq!(document.read().unwrap(), (3, String::from("one two three")));
}
