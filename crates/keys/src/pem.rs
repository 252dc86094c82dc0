//! PEM (RFC 7468): what stands in a text between lines that say what it is.

use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer,
    PrivateSec1KeyDer,
};

use crate::{KeyError, pbe};

/// What certificates are called; the second one by old programs.
const CERTIFICATE: [&str; 2] = ["CERTIFICATE", "X509 CERTIFICATE"];

/// What stands in a text, in its order.
#[derive(Default)]
pub(crate) struct Contents {
    pub(crate) certificates: Vec<CertificateDer<'static>>,
    pub(crate) keys: Vec<PrivateKeyDer<'static>>,
}

/// The certificates in a text. Its keys are passed over, so that no password is needed.
pub(crate) fn certificates(bytes: &[u8]) -> Result<Vec<CertificateDer<'static>>, KeyError> {
    let is_one = |section: &pem::Pem| CERTIFICATE.contains(&section.tag());
    let found = sections(bytes)?.into_iter().filter(is_one);
    Ok(found.map(|section| section.into_contents().into()).collect())
}

/// The lists of revoked certificates in a text.
pub(crate) fn lists(bytes: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, KeyError> {
    let found = sections(bytes)?.into_iter().filter(|section| section.tag() == "X509 CRL");
    Ok(found.map(|section| section.into_contents().into()).collect())
}

fn sections(bytes: &[u8]) -> Result<Vec<pem::Pem>, KeyError> {
    pem::parse_many(bytes)
        .map_err(|_| KeyError::Damaged("a section of its PEM has no end or is not in base64"))
}

/// Takes a text apart. The password is for keys that are encrypted. Sections of other kinds are passed over.
pub(crate) fn read(bytes: &[u8], password: Option<&str>) -> Result<Contents, KeyError> {
    let mut budget = pbe::Budget::new();
    let mut contents = Contents::default();
    for section in sections(bytes)? {
        let is_encrypted = section.headers().get("Proc-Type").is_some_and(|kind| kind.contains("ENCRYPTED"));
        let tag = section.tag().to_owned();
        let body = section.into_contents();
        let key: PrivateKeyDer<'static> = match tag.as_str() {
            tag if CERTIFICATE.contains(&tag) => {
                contents.certificates.push(body.into());
                continue;
            }
            _ if is_encrypted => {
                return Err(KeyError::Unsupported(
                    "its private key is encrypted in openssl's old way (Proc-Type), which is not read: convert \
                     it with openssl pkcs8 -topk8 -in OLD -out NEW"
                        .to_owned(),
                ));
            }
            "PRIVATE KEY" => PrivatePkcs8KeyDer::from(body).into(),
            "RSA PRIVATE KEY" => PrivatePkcs1KeyDer::from(body).into(),
            "EC PRIVATE KEY" => PrivateSec1KeyDer::from(body).into(),
            "ENCRYPTED PRIVATE KEY" => {
                let password = password
                    .ok_or(KeyError::Password("the private key is encrypted, and no password is given"))?;
                PrivatePkcs8KeyDer::from(pbe::private_key(&body, password, &mut budget)?).into()
            }
            _ => continue,
        };
        contents.keys.push(key);
    }
    Ok(contents)
}
