//! The driver by a URL, as an application has it.

use tenure::{Connectors, ErrorKind, Result};

#[tokio::test(start_paused = true)]
async fn an_application_connects_by_the_scheme_of_this_driver() -> Result<()> {
    let connectors =
        Connectors::new().with("table", custom_driver_example::connect)?;
    let client = connectors.connect("table:?ttl_ms=10000").await?;
    assert_eq!(client.driver(), "table");
    client.lock("orders/42").acquire().await?.release().await?;

    for (url, words) in [
        ("table:?rooms=3", "\"rooms\""),
        ("table://app:s3cret@host/", "the URL of a table"),
    ] {
        let error = connectors.connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(
            error.message().contains(words)
                && !error.to_string().contains("s3cret"),
            "{error}"
        );
    }
    Ok(())
}
