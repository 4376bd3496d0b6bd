"""Broker identity: certificates, the authority that issues them, and TLS links that require them.

`names` and `verdict` decide, without I/O. `certificates` makes and reads certificates, `folder` keeps an authority's
files, `secret` derives an authority from a pre-shared secret. `credentials` turns files into TLS contexts, `live` keeps
a broker's contexts up to date, `listener` accepts TLS links, and `https` checks the certificates of HTTPS clients.
"""
