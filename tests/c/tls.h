/* Tests of certificates, for a library that was built with OpenSSL. */
#ifndef STOA_TESTS_TLS_H
#define STOA_TESTS_TLS_H

#include "harness.h"

#ifdef HAVE_OPENSSL_H
void certificate_is_not_asked_for(struct fixture *f);
void certificate_opens(struct fixture *f);
void certificate_is_an_identity(struct fixture *f);
void server_of_another_authority_is_refused(struct fixture *f);
void client_without_a_certificate_is_refused(struct fixture *f);
void client_of_another_authority_is_refused(struct fixture *f);

/* The server that demands certificates: it is started when a test needs it. */
void tls_end(void);
#endif

#endif
