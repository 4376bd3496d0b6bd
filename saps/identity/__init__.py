"""Who a broker is, shown by a certificate: names, an authority that issues them, and links that stand on them.

`names` and `verdict` decide, without I/O. `certificates` makes and reads them, `folder` keeps an authority's files,
`secret` makes an authority out of a pre-shared secret. `credentials` turns files into TLS contexts, `live` holds them
for the links of a broker and reads them again, `listener` accepts sealed connections, `https` does the same for HTTP.
"""
