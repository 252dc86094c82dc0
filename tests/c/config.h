/* What the C client's own sources want to know when they are built with OpenSSL (xtask/src/c_client.rs). */
#ifndef STOA_TESTS_CONFIG_H
#define STOA_TESTS_CONFIG_H

#define HAVE_ARPA_INET_H 1
#define HAVE_NETDB_H 1
#define HAVE_NETINET_IN_H 1
#define HAVE_POLL 1
#define HAVE_SYS_SOCKET_H 1
#define HAVE_SYS_TIME_H 1
#define HAVE_UNISTD_H 1
#define PACKAGE_STRING "zookeeper C client"

#include <openssl/ssl.h>

/* OpenSSL 3 has it no more. */
#ifndef FIPS_mode
#define FIPS_mode() 0
#endif

/* Version 3.8 cannot do without a certificate of the client's, later ones can. With these it does as they do:
 * only an authority, as in "authority.pem", is no certificate. */
#define SSL_CTX_use_certificate_chain_file(context, file) \
    ((file) == NULL ? 1 : SSL_CTX_use_certificate_chain_file(context, file))
#define SSL_CTX_use_PrivateKey_file(context, file, type) \
    ((file) == NULL ? 1 : SSL_CTX_use_PrivateKey_file(context, file, type))
#define SSL_CTX_check_private_key(context) \
    (SSL_CTX_get0_certificate(context) == NULL ? 1 : SSL_CTX_check_private_key(context))

#endif
