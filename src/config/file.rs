//! A configuration from a file, in any format that serde reads.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::settings::{ClientConfig, SETTINGS};

/// The names of the fields, for messages.
const FIELDS: [&str; SETTINGS.len() + 1] = {
    let mut fields = ["url"; SETTINGS.len() + 1];
    let mut at = 0;
    while at < SETTINGS.len() {
        fields[at + 1] = SETTINGS[at].field;
        at += 1;
    }
    fields
};

/// Reads a map or table of fields, each at most once; missing or null fields are not set. Times are text with a unit,
/// and numbers may be text as well. An unknown field is an error that names it and the known ones; so is a value that
/// cannot be read. Values are not repeated. For self-describing formats (TOML, JSON, YAML).
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl<'de> Deserialize<'de> for ClientConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct("ClientConfig", &FIELDS, Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = ClientConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the settings of a client")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ClientConfig, A::Error> {
        let (mut config, mut seen) = (ClientConfig::default(), [false; FIELDS.len()]);
        while let Some(field) = map.next_key::<String>()? {
            let Some(at) = FIELDS.iter().position(|known| *known == field) else {
                return Err(A::Error::unknown_field(&field, &FIELDS));
            };
            if std::mem::replace(&mut seen[at], true) {
                return Err(A::Error::duplicate_field(FIELDS[at]));
            }
            let Some(text) = map.next_value::<Text>()?.0 else { continue };
            match at.checked_sub(1) {
                None => config.url = Some(text),
                Some(setting) => {
                    let read = SETTINGS[setting].read(&mut config, &text);
                    read.map_err(|wrong| A::Error::custom(format_args!("the setting {field} {wrong}")))?;
                }
            }
        }
        Ok(config)
    }
}

/// The text of a value: of a number, its digits.
struct Text(Option<String>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyText)
    }
}

struct AnyText;

impl<'de> Visitor<'de> for AnyText {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text or a number")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text(Some(text.to_owned())))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Text, E> {
        Ok(Text(Some(number.to_string())))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Text, E> {
        Ok(Text(Some(number.to_string())))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Text, E> {
        Ok(Text(Some(number.to_string())))
    }

    fn visit_unit<E: Error>(self) -> Result<Text, E> {
        Ok(Text(None))
    }

    fn visit_none<E: Error>(self) -> Result<Text, E> {
        Ok(Text(None))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Text, D::Error> {
        Deserialize::deserialize(deserializer)
    }
}
