#!/bin/sh
# Makes what is in this folder, with the keytool and java of Java 17 and openssl 3. Every password is `changeit`, but
# for what is called "empty". Keys and salts are new each time; tests look at nothing that changes with them.
set -eu
cd "$(dirname "$0")"
rm -f -- *.jks *.jceks *.p12 *.pem *.der
pass='-storepass changeit -keypass changeit'
days='-validity 36500'

# Stores of keytool: a key of each kind that there is.
pair() { # file, kind, alias, more
    into=$1 as=$2 alias=$3
    shift 3
    keytool -genkeypair -noprompt -keystore "$into" -storetype "$as" $pass $days -alias "$alias" \
        -dname "CN=$alias,O=Stoa" "$@" 2> /dev/null
}
trusted() { # file, kind, alias, certificate
    keytool -importcert -noprompt -keystore "$1" -storetype "$2" -storepass changeit -alias "$3" -file "$4" 2> /dev/null
}
for type in jks p12; do
    kind=$(test $type = jks && echo JKS || echo PKCS12)
    pair rsa.$type $kind rsa -keyalg RSA -keysize 2048
    pair p256.$type $kind p256 -keyalg EC -groupname secp256r1
    pair p384.$type $kind p384 -keyalg EC -groupname secp384r1
    pair p521.$type $kind p521 -keyalg EC -groupname secp521r1
done
pair ed25519.p12 PKCS12 ed25519 -keyalg Ed25519
pair dsa.p12 PKCS12 dsa -keyalg DSA -keysize 1024
pair secret.jceks JCEKS p256 -keyalg EC -groupname secp256r1

# An authority, one below it, and a certificate of that one, in PEM.
authority() { # name, more
    name=$1
    shift
    openssl req -x509 -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 36500 -subj "/O=Stoa/CN=$name" \
        -keyout "$name.key" -out "$name.pem" "$@" 2> /dev/null
}
authority authority
authority below -CA authority.pem -CAkey authority.key
openssl req -x509 -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -days 36500 -subj "/O=Stoa/CN=leaf" \
    -addext basicConstraints=critical,CA:FALSE -CA below.pem -CAkey below.key -keyout leaf.key -out leaf.pem 2> /dev/null
openssl req -x509 -new -newkey rsa:2048 -noenc -days 36500 -subj "/O=Stoa/CN=rsa leaf" \
    -addext basicConstraints=critical,CA:FALSE -CA below.pem -CAkey below.key -keyout rsa.key -out rsa-leaf.pem 2> /dev/null

# Stores of openssl.
cat authority.pem below.pem > chain.pem
exported() { # file, more
    file=$1
    shift
    openssl pkcs12 -export -in leaf.pem -inkey leaf.key -certfile chain.pem -out "$file" "$@"
}
exported openssl.p12 -passout pass:changeit -name leaf
exported openssl-legacy.p12 -passout pass:changeit -legacy
exported openssl-3des.p12 -passout pass:changeit -certpbe PBE-SHA1-3DES -keypbe PBE-SHA1-3DES -macalg sha1
exported openssl-rc2.p12 -passout pass:changeit -certpbe PBE-SHA1-RC2-128 -keypbe PBE-SHA1-2DES -macalg sha384 -legacy
exported openssl-aes128.p12 -passout pass:changeit -certpbe AES-128-CBC -keypbe AES-192-CBC -macalg sha512
exported openssl-nomac.p12 -passout pass:changeit -nomac
exported openssl-plain.p12 -passout pass: -certpbe NONE -keypbe NONE -nomac
exported openssl-empty.p12 -passout pass:
exported openssl-empty-legacy.p12 -passout pass: -legacy
exported openssl-iterations.p12 -passout pass:changeit -iter 11000000 -nomac
openssl pkcs12 -export -nokeys -in chain.pem -out openssl-unmarked.p12 -passout pass:changeit

# What keytool makes of them, and trust stores.
imported() { # from, file, kind, more
    from=$1 into=$2 as=$3
    shift 3
    keytool -importkeystore -noprompt -srckeystore "$from" -srcstoretype PKCS12 -srcstorepass changeit \
        -destkeystore "$into" -deststoretype "$as" -deststorepass changeit "$@" 2> /dev/null
}
imported openssl.p12 chain.jks JKS
imported openssl.p12 chain.p12 PKCS12
imported openssl.p12 chain-legacy.p12 PKCS12 -J-Dkeystore.pkcs12.legacy
imported openssl.p12 chain-plain.p12 PKCS12 -J-Dkeystore.pkcs12.certProtectionAlgorithm=NONE \
    -J-Dkeystore.pkcs12.macAlgorithm=NONE
for type in jks p12; do
    kind=$(test $type = jks && echo JKS || echo PKCS12)
    trusted trust.$type $kind authority authority.pem
    trusted trust.$type $kind below below.pem
    # A trusted certificate first, then two keys.
    trusted both.$type $kind authority authority.pem
    pair both.$type $kind first -keyalg EC -groupname secp256r1
    pair both.$type $kind second -keyalg EC -groupname secp256r1
done
keytool -importcert -noprompt -keystore trust-plain.p12 -storetype PKCS12 -storepass changeit -alias authority \
    -file authority.pem -J-Dkeystore.pkcs12.certProtectionAlgorithm=NONE -J-Dkeystore.pkcs12.macAlgorithm=NONE 2> /dev/null
# A key with another password than its store, which a JKS can have.
keytool -genkeypair -noprompt -keystore two-passwords.jks -storetype JKS -storepass changeit -keypass different $days \
    -alias p256 -dname "CN=p256,O=Stoa" -keyalg EC -groupname secp256r1 2> /dev/null

# PEM: keys in all forms, with certificates in any order.
{ echo "A note before it."; cat authority.pem leaf.pem below.pem leaf.key; } > pkcs8.pem
{ openssl ec -in leaf.key 2> /dev/null; cat leaf.pem; } > sec1.pem
{ openssl ecparam -name prime256v1; openssl ec -in leaf.key -no_public 2> /dev/null; cat below.pem leaf.pem; } > sec1-half.pem
{ openssl rsa -in rsa.key -traditional 2> /dev/null; cat rsa-leaf.pem; } > pkcs1.pem
{ openssl pkey -in rsa.key 2> /dev/null; cat rsa-leaf.pem; } > pkcs8-rsa.pem
encrypted() { # file, more
    file=$1
    shift
    { openssl pkcs8 -topk8 -in leaf.key -passout pass:changeit "$@"; cat leaf.pem below.pem; } > "$file"
}
encrypted encrypted.pem
encrypted encrypted-scrypt.pem -scrypt
encrypted encrypted-sha512.pem -v2 aes-128-cbc -v2prf hmacWithSHA512
encrypted encrypted-3des.pem -v2 des3 -v2prf hmacWithSHA1
encrypted encrypted-pkcs12.pem -v1 PBE-SHA1-3DES
encrypted encrypted-md5.pem -v1 PBE-MD5-DES -provider legacy -provider default
{ openssl rsa -in rsa.key -traditional -aes128 -passout pass:changeit 2> /dev/null; cat rsa-leaf.pem; } > encrypted-old.pem
{ cat leaf.pem; cat rsa.key; } > unfit.pem
openssl req -x509 -new -newkey rsa:1024 -noenc -days 36500 -subj /CN=short -keyout short.key -out short.crt 2> /dev/null
cat short.key short.crt > short.pem
openssl req -x509 -new -newkey rsa:1024 -noenc -days 36500 -subj /CN=small -keyout small.key -out small.crt 2> /dev/null
openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc -subj /CN=client -keyout of-small.key -out of-small.csr 2> /dev/null
printf 'extendedKeyUsage=clientAuth\n' > of-small.ext
openssl x509 -req -in of-small.csr -CA small.crt -CAkey small.key -days 36500 -extfile of-small.ext -out of-small.crt 2> /dev/null
cat of-small.crt small.crt > small.pem
openssl x509 -in leaf.pem -outform DER -out leaf.der
mv leaf.key leaf-key.pem
rm -f -- *.key short.crt small.crt small.srl of-small.* rsa-leaf.pem

# Names as Java sees them.
java Names.java names 1 300 > names.txt
java Names.java texts 1 300 > texts.txt
ls -s
