vcl 4.1; // version
backend a{.host="127.0.0.1";.probe={.url="/";}}
acl l +log {! "10.0.0.1"/8; /* in
  it */ ("host");}
sub x{ # open
if(a.b~"c"
||!(d==1.5s)){std.log({"x
"}+"y",z=-1);}
# no
else{return(synth(404,"x"));}}
