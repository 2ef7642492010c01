"""Rows in the forms of MBPP and HumanEval. Each has a right answer, which all of its tests must pass.

A block begins with its name. `---` separates the code from the tests, and the tests from one another; in a block of
HumanEval, the prompt, the solution and the test. `(setup)` after a name: the first test is the set-up of all others.
"""

MBPP = r"""\
=== ordered
from collections import OrderedDict
def f(x):
 return OrderedDict((i,1) for i in x)
---
assert f([1,2])=={1:1,2:1}
assert list(f([2,1]).items())==[(2,1),(1,1)]
=== defaultdict
from collections import defaultdict
def f(x):
 d=defaultdict(list)
 for i in x: d[i%2].append(i)
 return d
---
assert f([1,2,3])=={1:[1,3],0:[2]}
---
assert f([])[5]==[]
=== defaultdict lambda
from collections import defaultdict
def f(x):
 d=defaultdict(lambda: 7)
 d[1]=2
 return d
---
assert f(1)=={1:2}
---
assert f(1)[9]==7
=== deque
from collections import deque
def f(x): return deque(x,maxlen=2)
---
from collections import deque
assert f([1,2,3])==deque([2,3])
=== nan
def f(): return float('nan')
---
import math
assert math.isnan(f())
---
x=f()
assert x!=x
=== decimal
from decimal import Decimal
def f(x): return Decimal(x)/3
---
from decimal import Decimal
assert f(1)==Decimal(1)/3
---
assert round(f(1),2)==round(f(1),2)
---
assert abs(float(f(1))-1/3)<1e-9
=== fraction
from fractions import Fraction
def f(a,b): return Fraction(a,b)
---
from fractions import Fraction
assert f(1,3)+f(1,6)==Fraction(1,2)
=== sets
def f(x): return frozenset(x)
---
assert f([1,2])=={1,2}
---
assert f([1]) <= {1,2}
---
assert isinstance(f([1]),frozenset)
=== set of tuples
def f(x): return {(1,2),('a',)}
---
assert f(1)=={(1,2),('a',)}
---
assert (1,2) in f(1)
=== bytes
def f(x): return x.encode()
---
assert f('é')==b'\xc3\xa9'
=== bytearray
def f(x): return bytearray(x)
---
assert f(b'a')==bytearray(b'a')
=== complex
def f(a,b): return complex(a,b)*2
---
assert f(1,2)==2+4j
=== range
def f(n): return range(n)
---
assert f(3)==range(3)
---
assert list(f(3))==[0,1,2]
=== date
import datetime
def f(y): return datetime.date(y,1,2)
---
import datetime
assert f(2020)==datetime.date(2020,1,2)
---
assert f(2020).year==2020
---
assert str(f(2020))=='2020-01-02'
=== datetime tz
from datetime import *
def f(): return datetime(2020,1,2,3,tzinfo=timezone.utc)-timedelta(hours=1)
---
from datetime import *
assert f()==datetime(2020,1,2,2,tzinfo=timezone.utc)
---
assert f().isoformat()=='2020-01-02T02:00:00+00:00'
=== map
def f(x): return map(str,x)
---
assert list(f([1,2]))==['1','2']
---
assert isinstance(f([1]),map)
---
assert next(f([4]))=='4'
=== filter zip
def f(x): return zip(x,filter(None,x))
---
assert list(f([1,0,2]))==[(1,1),(0,2)]
=== generator
def f(n):
 while True:
  yield n
  n+=1
---
from itertools import islice
assert list(islice(f(3),4))==[3,4,5,6]
---
import types
assert isinstance(f(1),types.GeneratorType)
---
g=f(1)
assert next(g)==1 and next(g)==2
=== generator send
def f():
 x=0
 while True:
  y=yield x
  x+= y or 1
---
g=f()
next(g)
assert g.send(5)==5
assert g.send(2)==7
=== gen return
def f():
 yield 1
 return 9
---
g=f()
next(g)
try:
 next(g)
except StopIteration as e:
 assert e.value==9
else:
 assert 0
=== yield from big
def f(n):
 for i in range(n): yield i*i
---
assert sum(f(5000))==sum(i*i for i in range(5000))
=== class with a constant and a helper
EPS=1e-9
def near(a,b): return abs(a-b)<EPS
class P:
 def __init__(self,x): self.x=x
 def __eq__(self,o): return near(self.x,o.x)
def f(x): return P(x)
---
assert f(1)==P(1)
=== evaluated call
def f(x): return x+1
---
assert eval('f(1)')==2
=== namedtuple
from collections import namedtuple
P=namedtuple('P','x y')
def f(a,b): return P(a,b)
---
assert f(1,2)==(1,2)
---
assert f(1,2).x==1
---
assert f(1,2)==P(1,2)
---
assert P(3,4).y==4
---
assert f(1,2)._asdict()=={'x':1,'y':2}
=== NamedTuple
from typing import NamedTuple
class P(NamedTuple):
 x:int
 y:int=5
def f(p): return P(p.x+1,p.y)
---
assert f(P(1))==P(2,5)
---
assert isinstance(f(P(1)),P)
=== dataclass
from dataclasses import dataclass
@dataclass
class P:
 x:int
 y:int
def f(a,b): return P(a,b)
def g(p):
 p.x+=1
---
assert f(1,2)==P(1,2)
---
assert f(1,2)!=P(1,3)
---
assert f(1,2).x==1
---
p=P(1,2)
g(p)
assert p.x==2 and p==P(2,2)
---
assert repr(f(1,2))=='P(x=1, y=2)'
---
import dataclasses
assert dataclasses.asdict(f(1,2))=={'x':1,'y':2}
=== enum
from enum import Enum
class C(Enum):
 R=1
 G=2
def f(x): return C.R if x else C.G
---
assert f(1)==C.R
---
assert f(0) is C.G
---
assert f(0).value==2
---
assert [c.name for c in C]==['R','G']
=== enum in
from enum import Enum
class C(Enum):
 R=1
 G=2
def f(x): return x is C.R
---
assert f(C.R)
---
assert not f(C.G)
=== match
import re
def f(x): return re.match('a(b)',x)
---
assert f('ab').group(1)=='b'
---
assert f('x') is None
---
assert f('ab')
---
assert not f('x')
---
assert f('ab') != None
=== raises
def f(x):
 if x<0: raise ValueError('neg %d'%x)
 return x
---
try:
 f(-1)
 assert False
except ValueError as e:
 assert str(e)=='neg -1'
---
assert f(1)==1
=== raises custom
class Bad(ValueError):
 def __init__(self,code):
  super().__init__('bad')
  self.code=code
def f(x): raise Bad(x)
---
try:
 f(3)
except Bad as e:
 assert e.code==3 and str(e)=='bad'
else:
 assert False
---
try:
 f(3)
except ValueError:
 pass
=== keyerror
def f(x): return {}[x]
---
try:
 f('k')
 assert False
except KeyError as e:
 assert e.args==('k',)
=== zerodiv
def f(x): return 1/x
---
import unittest
class T(unittest.TestCase):
 def test_a(self):
  with self.assertRaises(ZeroDivisionError): f(0)
  self.assertAlmostEqual(f(3),0.3333333,5)
=== unittest main
def f(x): return x
---
import unittest
class T(unittest.TestCase):
 def test_a(self): self.assertEqual(f(1),1)
if __name__=='__main__':
 unittest.main()
=== lambda arg
def f(g,x): return [g(i) for i in x]
---
assert f(lambda v:v+1,[1,2])==[2,3]
---
assert f(str,[1])==['1']
---
assert f(len,['ab'])==[2]
---
import math
assert f(math.sqrt,[4])==[2.0]
=== key func
def f(x,key=None): return sorted(x,key=key)
---
assert f([3,1],key=lambda v:-v)==[3,1]
=== lambda raises
def f(g):
 try: g()
 except KeyError as e: return e.args[0]
---
def g(): raise KeyError('q')
assert f(g)=='q'
=== lambda raises through
def f(g): return g()
---
class E(Exception): pass
def g(): raise E('q')
try:
 f(g)
except E as e: assert e.args==('q',)
else: assert 0
=== decorator
import functools
def memo(fn):
 c={}
 @functools.wraps(fn)
 def w(*a):
  if a not in c: c[a]=fn(*a)
  return c[a]
 return w
---
n=[]
@memo
def g(x):
 n.append(x)
 return x*2
assert g(2)==4 and g(2)==4 and n==[2] and g.__name__=='g'
=== compose
def compose(*fs):
 def h(x):
  for f in reversed(fs): x=f(x)
  return x
 return h
---
assert compose(lambda x:x+1, lambda x:x*2)(5)==11
=== closure counter
def counter():
 n=0
 def c():
  nonlocal n
  n+=1
  return n
 return c
---
c=counter()
assert c()==1 and c()==2
assert counter()()==1
=== in place
def f(x):
 x.sort()
---
a=[3,1,2]
assert f(a) is None
assert a==[1,2,3]
=== in place nested
def f(m):
 for r in m: r.reverse()
 m.append([9])
---
m=[[1,2],[3,4]]
r=m[0]
f(m)
assert m==[[2,1],[4,3],[9]] and r==[2,1]
=== in place dict
def f(d):
 d['a']=1
 d.pop('b')
 return d
---
d={'b':2}
e=f(d)
assert d=={'a':1} and e is d
=== not mutated
def f(x): return sorted(x)
---
a=[3,1]
assert f(a)==[1,3] and a==[3,1]
=== alias
def f(x): return [x,x]
---
a=[1]
b=f(a)
assert b[0] is a and b[1] is a
=== cycle
def f():
 a=[1]
 a.append(a)
 return a
---
a=f()
assert a[1] is a and a[0]==1
=== prints
def f(x):
 print('hi',x)
---
import io,contextlib
b=io.StringIO()
with contextlib.redirect_stdout(b): f(3)
assert b.getvalue()=='hi 3\n'
=== prints no end
def f(x):
 print('hi',end='')
 return x
---
assert f(1)==1
=== prints much
def f(x):
 for i in range(100000): print('x'*20)
 return x
---
assert f(1)==1
=== os write
import os
def f(x):
 os.write(1,b'zzz')
 return x
---
assert f(1)==1
=== input
def f():
 return input()+input()
---
import sys,io
sys.stdin=io.StringIO('a\nb\n')
assert f()=='ab'
=== input patch
def f():
 return input('?')
---
from unittest.mock import patch
with patch('builtins.input',side_effect=['x']): assert f()=='x'
=== stdin read
import sys
def f():
 return [int(v) for v in sys.stdin.read().split()]
---
import sys,io
sys.stdin=io.StringIO('1 2\n3')
assert f()==[1,2,3]
=== stdin lines
import sys
def f():
 return [l.strip() for l in sys.stdin]
---
import sys,io
sys.stdin=io.StringIO('a\nb')
assert f()==['a','b']
=== stack class
class Stack:
 def __init__(self): self.items=[]
 def push(self,x): self.items.append(x)
 def pop(self): return self.items.pop()
 def __len__(self): return len(self.items)
 @property
 def top(self): return self.items[-1]
 @classmethod
 def of(cls,*a):
  s=cls()
  s.items=list(a)
  return s
 @staticmethod
 def z(): return 0
---
s=Stack()
s.push(1)
s.push(2)
assert len(s)==2 and s.pop()==2 and s.top==1 and s.items==[1]
---
try:
 Stack().pop()
 assert 0
except IndexError: pass
---
assert Stack.of(1,2).pop()==2 and Stack.z()==0
---
assert isinstance(Stack(),Stack)
---
assert type(Stack()) is Stack and type(Stack()).__name__=='Stack'
=== iter class
class R:
 def __init__(self,n): self.n=n
 def __iter__(self): return iter(range(self.n))
 def __getitem__(self,i): return i*2
 def __contains__(self,x): return x<self.n
 def __call__(self,x): return x+self.n
 def __str__(self): return 'R%d'%self.n
 def __repr__(self): return 'R(%d)'%self.n
 def __bool__(self): return self.n>0
 def __enter__(self): return self
 def __exit__(self,*a): self.n=-1
---
r=R(3)
assert list(r)==[0,1,2] and r[4]==8 and 2 in r and r(1)==4 and str(r)=='R3' and repr(r)=='R(3)' and r and not R(0)
---
with R(2) as r: assert r.n==2
assert r.n==-1
=== tree
class Node:
 def __init__(self,v,left=None,right=None):
  self.v=v;self.left=left;self.right=right
def flip(n):
 if n: n.left,n.right=flip(n.right),flip(n.left)
 return n
---
r=Node(1,Node(2),Node(3))
x=flip(r)
assert x.left.v==3 and r.right.v==2 and x is r
=== tree setup (setup)
class Node:
 def __init__(self,v):
  self.v=v;self.left=None
def depth(n): return 0 if n is None else 1+depth(n.left)
---
root = Node(1)
root.left = Node(2)
---
assert depth(root)==2
=== linked list
class L:
 def __init__(self,v,next=None):
  self.v=v;self.next=next
def rev(h):
 p=None
 while h: h.next,p,h=p,h,h.next
 return p
---
def to(h):
 out=[]
 while h: out.append(h.v); h=h.next
 return out
assert to(rev(L(1,L(2,L(3)))))==[3,2,1]
=== vector ops
class V:
 def __init__(s,x,y): s.x=x;s.y=y
 def __add__(s,o): return V(s.x+o.x,s.y+o.y)
 def __mul__(s,k): return V(s.x*k,s.y*k)
 def __eq__(s,o): return (s.x,s.y)==(o.x,o.y)
 def __lt__(s,o): return s.x<o.x
 def __hash__(s): return hash(s.x)
 def __abs__(s): return (s.x**2+s.y**2)**.5
---
v=V(1,2)+V(3,4)
assert v.x==4 and v.y==6
---
assert (V(1,2)*3).x==3
---
assert abs(V(3,4))==5
---
assert V(1,2)+V(3,4)==V(4,6)
---
assert V(1,2)!=V(1,3)
---
assert V(1,2)<V(2,0)
---
assert sorted([V(2,0),V(1,0)])[0].x==1
=== inherit
class A:
 def hi(self): return 'a'
class B(A):
 def hi(self): return super().hi()+'b'
---
assert B().hi()=='ab' and isinstance(B(),A) and issubclass(B,A)
=== abstract
from abc import ABC,abstractmethod
class A(ABC):
 @abstractmethod
 def f(self): ...
class B(A):
 def f(self): return 1
---
assert B().f()==1
try:
 A()
 assert 0
except TypeError: pass
=== test object
def f(o):
 o.n+=1
 return o.name()
---
class O:
 n=0
 def name(self): return 'x'
o=O()
assert f(o)=='x' and o.n==1
=== mock arg
def f(m):
 m.send('a',b=2)
 return m.get()
---
from unittest.mock import Mock
m=Mock()
m.get.return_value=7
assert f(m)==7
m.send.assert_called_once_with('a',b=2)
=== iterator arg
def f(it): return [next(it),next(it)]
---
it=iter([1,2,3])
assert f(it)==[1,2] and next(it)==3
---
assert f(x*x for x in [1,2,3])==[1,4]
=== inf arg
def f(x): return x>10
---
assert f(float('inf'))
=== big int
def f(n): return 2**n
---
assert f(20000)==1<<20000
=== long str
def f(n): return 'x'*n
---
assert f(300000)=='x'*300000
=== surrogate
def f(): return '\ud800x'
---
assert f()=='\ud800x'
=== type arg
def f(x,t): return [i for i in x if type(i)!=t]
---
assert f([1,'a'],str)==[1]
---
assert f([1,None],type(None))==[1]
=== type result
def f(x): return type(x)
---
assert f(1) is int
---
assert f([]) == list
=== async
import asyncio
async def f(x):
 await asyncio.sleep(0)
 return x+1
---
import asyncio
assert asyncio.run(f(1))==2
=== async gen
async def f(n):
 for i in range(n): yield i
---
import asyncio
async def t(): return [x async for x in f(3)]
assert asyncio.run(t())==[0,1,2]
=== module const
LIMIT=5
def f(): return LIMIT+1
---
assert f()==LIMIT+1
=== imports of solution
import sys
import math as m
def f(x): return sys.getsizeof(x)
---
assert f(1)==sys.getsizeof(1) and m.pi>3
=== dict views
def f(d): return d.keys()
---
assert f({1:2})=={1:2}.keys()
---
assert sorted(f({2:1,1:1}))==[1,2]
=== ellipsis
def f(): return ...
---
assert f() is ...
=== bool int
def f(): return True
---
assert f() is True
---
assert f()==1
=== int subclass
import enum
class C(enum.IntEnum):
 A=3
def f(): return C.A
---
assert f()==3
=== str subclass
class S(str): pass
def f(): return S('a')
---
assert f()=='a'
=== UserDict
from collections import UserDict
def f(): return UserDict(a=1)
---
assert f()['a']==1
=== array
from array import array
def f(): return array('i',[1,2])
---
from array import array
assert f()==array('i',[1,2])
=== uuid path
import pathlib
def f(): return pathlib.Path('a')/'b'
---
from pathlib import Path
assert f()==Path('a/b') and f().name=='b'
=== recursion
def f(n): return 0 if n==0 else 1+f(n-1)
---
assert f(900)==900
---
try:
 f(10**6)
 assert 0
except RecursionError: pass
=== setrecursion
import sys
sys.setrecursionlimit(20000)
def f(n): return 0 if n==0 else 1+f(n-1)
---
assert f(9000)==9000
=== sys.exit
import sys
def f(): sys.exit(3)
---
try:
 f()
 assert 0
except SystemExit as e: assert e.code==3
=== eval
def f(): return '1+2*3'
---
assert eval(f())==7
=== simple ns
from types import SimpleNamespace
def f(): return SimpleNamespace(a=1)
---
from types import SimpleNamespace
assert f().a==1 and f()==SimpleNamespace(a=1)
=== pytest style
def f(x): return x
---
from solution import f
def test_a():
 assert f(1)==1
def test_b(): assert f(2)==2
=== singleton
class S:
 _i=None
 def __new__(cls):
  if cls._i is None: cls._i=super().__new__(cls)
  return cls._i
---
assert S() is S()
=== class attr
class A:
 count=0
 def __init__(self): A.count+=1
---
A();A()
assert A.count==2
=== generic fn attr
def f(x): f.calls=getattr(f,'calls',0)+1; return x
---
f(1);f(1)
assert f.calls==2 and f.__name__=='f'
=== partial
from functools import partial
def f(n): return partial(pow,n)
---
assert f(2)(3)==8
=== lru
from functools import lru_cache
@lru_cache(None)
def fib(n): return n if n<2 else fib(n-1)+fib(n-2)
---
assert fib(50)==12586269025
---
assert fib.cache_info().hits>=0
=== context mgr
from contextlib import contextmanager
@contextmanager
def c(l):
 l.append(1)
 yield 5
 l.append(2)
---
l=[]
with c(l) as v: assert v==5 and l==[1]
assert l==[1,2]
=== context exc
class C:
 def __enter__(self): return self
 def __exit__(self,t,e,tb): return t is ValueError
---
with C(): raise ValueError('x')
try:
 with C(): raise KeyError
 assert 0
except KeyError: pass
=== set default alias
def f(a,b=[]):
 b.append(a)
 return b
---
assert f(1)==[1]
assert f(2)==[1,2]
=== get_event_loop
import asyncio
async def g(x): return x+1
def f(x):
 loop=asyncio.get_event_loop()
 return loop.run_until_complete(g(x))
---
assert f(1)==2
=== thread inside
import threading
def f(x):
 out=[]
 ts=[threading.Thread(target=lambda i=i: out.append(i)) for i in range(x)]
 [t.start() for t in ts]
 [t.join() for t in ts]
 return sorted(out)
---
assert f(3)==[0,1,2]
=== pool callbacks
from concurrent.futures import ThreadPoolExecutor
def f(g,xs):
 with ThreadPoolExecutor(3) as p: return list(p.map(g,xs))
---
assert f(lambda v:v*2,[1,2,3])==[2,4,6]
=== visitor
def walk(t,visit):
 for k,v in t.items():
  visit(k)
  if isinstance(v,dict): walk(v,visit)
---
seen=[]
walk({'a':{'b':1},'c':2},seen.append)
assert seen==['a','b','c']
=== event emitter
class E:
 def __init__(s): s.h={}
 def on(s,n,f): s.h.setdefault(n,[]).append(f)
 def emit(s,n,*a):
  return [f(*a) for f in s.h.get(n,[])]
---
e=E()
r=[]
e.on('x',lambda v:r.append(v))
e.on('x',lambda v:v+1)
assert e.emit('x',4)==[None,5] and r==[4]
=== retry decorator
def retry(n):
 def d(f):
  def w(*a,**k):
   for i in range(n):
    try: return f(*a,**k)
    except ValueError:
     if i==n-1: raise
  return w
 return d
---
calls=[]
@retry(3)
def g(x):
 calls.append(x)
 if len(calls)<3: raise ValueError
 return x
assert g(5)==5 and len(calls)==3
---
@retry(2)
def h(): raise ValueError('z')
try:
 h()
 assert 0
except ValueError as e: assert str(e)=='z'
=== class decorator
def rep(cls):
 cls.tag='t'
 return cls
---
@rep
class A: pass
assert A.tag=='t' and A().tag=='t'
=== property
class C:
 def __init__(s,v): s._v=v
 @property
 def v(s): return s._v
 @v.setter
 def v(s,x):
  if x<0: raise ValueError
  s._v=x
---
c=C(1)
c.v=5
assert c.v==5
try:
 c.v=-1
 assert 0
except ValueError: pass
=== lru cache class
from collections import OrderedDict
class LRU:
 def __init__(s,n): s.n=n;s.d=OrderedDict()
 def get(s,k):
  if k not in s.d: return -1
  s.d.move_to_end(k)
  return s.d[k]
 def put(s,k,v):
  s.d[k]=v
  s.d.move_to_end(k)
  if len(s.d)>s.n: s.d.popitem(last=False)
---
c=LRU(2)
c.put(1,1);c.put(2,2)
assert c.get(1)==1
c.put(3,3)
assert c.get(2)==-1 and list(c.d)==[1,3]
=== dataclass method
from dataclasses import dataclass,field
@dataclass(order=True)
class P:
 x:int
 t:list=field(default_factory=list)
 def add(s,v):
  s.t.append(v)
  return s
---
p=P(1)
p.add(2).add(3)
assert p.t==[2,3]
---
assert P(1)<P(2) and sorted([P(2),P(1)])[0].x==1
---
assert P(1)==P(1) and P(1,[2])==P(1).add(2)
=== frozen dc
from dataclasses import dataclass
@dataclass(frozen=True)
class P:
 x:int
def f(ps): return {p:p.x for p in ps}
---
assert f([P(1),P(2)])=={P(1):1,P(2):2}
---
import dataclasses
try:
 P(1).x=2
 assert 0
except dataclasses.FrozenInstanceError: pass
=== set of points
class P:
 def __init__(s,x): s.x=x
 def __eq__(s,o): return isinstance(o,P) and s.x==o.x
 def __hash__(s): return hash(s.x)
def uniq(ps): return set(ps)
---
assert len(uniq([P(1),P(1),P(2)]))==2
---
assert uniq([P(1),P(1)])=={P(1)}
---
assert P(1) in [P(2),P(1)]
=== flag
import enum
class F(enum.Flag):
 A=1
 B=2
def f(): return F.A|F.B
---
assert f()==F.A|F.B
---
assert F.A in f()
=== enum method
from enum import Enum
class C(Enum):
 A=1
 B=2
 def flip(self): return C.B if self is C.A else C.A
---
assert C.A.flip()==C.B
---
assert C.A.flip().name=='B'
---
assert C(2) is C.B
=== typed dict
from typing import TypedDict
class T(TypedDict):
 a:int
def f() -> T: return T(a=1)
---
assert f()=={'a':1}
=== exc group attrs
class V(Exception):
 def __init__(s,f,m):
  s.f=f
  super().__init__(f'{f}: {m}')
 def __str__(s): return '<'+s.f+'>'
def f(): raise V('n','bad')
---
try:
 f()
 assert 0
except V as e:
 assert e.f=='n' and str(e)=='<n>' and isinstance(e,Exception)
=== exc chain
class A(Exception): pass
class B(A,KeyError): pass
def f(): raise B('k')
---
try:
 f()
except A as e: assert isinstance(e,KeyError)
---
import unittest
class T(unittest.TestCase):
 def test(self):
  self.assertRaisesRegex(B,'k',f)
=== raise in gen
def f():
 yield 1
 raise ValueError('x')
---
g=f()
assert next(g)==1
try:
 next(g)
 assert 0
except ValueError: pass
=== gen side effects
def f(l):
 for i in range(3):
  l.append(i)
  yield i
---
l=[]
g=f(l)
assert l==[]
next(g)
assert l==[0]
next(g)
assert l==[0,1]
=== nested fn kwargs
def f(*a,k=1,**kw): return (a,k,kw)
---
assert f(1,2,k=3,z=4)==((1,2),3,{'z':4})
=== bytes io
import io
def f(b): return b.read().upper()
---
import io
assert f(io.StringIO('ab'))=='AB'
assert f(io.BytesIO(b'ab'))==b'AB'
=== json text
import json
def f(x): return json.dumps(x,sort_keys=True)
---
import json
assert json.loads(f({'b':1,'a':[None,True]}))=={'a':[None,True],'b':1}
=== cmp_to_key
import functools
def f(x,c): return sorted(x,key=functools.cmp_to_key(c))
---
assert f([1,3,2],lambda a,b:b-a)==[3,2,1]
=== heap
import heapq
def f(h,x): heapq.heappush(h,x)
---
h=[2,5]
f(h,1)
assert h[0]==1 and sorted(h)==[1,2,5]
=== matrix in place
def rot(m): m[:]=[list(r) for r in zip(*m[::-1])]
---
m=[[1,2],[3,4]]
rot(m)
assert m==[[3,1],[4,2]]
=== kwargs only cls
class A:
 def __init__(self,*,x=1): self.x=x
 def __getitem__(self,k): return k
 def __setitem__(self,k,v): self.x=(k,v)
 def __iter__(self):
  yield self.x
 def __reversed__(self): return iter([9])
 def __contains__(self,v): return v==5
 def __len__(self): return 4
---
a=A(x=3)
assert a.x==3
a['q']=2
assert a.x==('q',2) and a[1:2]==slice(1,2) and list(a)==[('q',2)] and list(reversed(a))==[9] and len(a)==4
=== metaclass reg
class M(type):
 reg=[]
 def __new__(m,n,b,d):
  c=super().__new__(m,n,b,d)
  m.reg.append(n)
  return c
class A(metaclass=M): pass
---
assert 'A' in M.reg
=== slots
class A:
 __slots__=('x',)
 def __init__(s,x): s.x=x
 def __eq__(s,o): return s.x==o.x
---
assert A(1)==A(1)
assert A(1)!=A(2)
---
try:
 A(1).y=2
 assert 0
except AttributeError: pass
=== linked equality
class N:
 def __init__(s,v,n=None): s.v=v;s.n=n
 def __eq__(s,o): return isinstance(o,N) and s.v==o.v and s.n==o.n
def rev(h):
 p=None
 while h: h.n,p,h=p,h,h.n
 return p
---
assert rev(N(1,N(2)))==N(2,N(1))
=== module import as
def f(x): return x+1
---
import solution as s
assert s.f(1)==2
---
from solution import *
assert f(1)==2
=== math close list
def f(x): return [v/3 for v in x]
---
import math
assert all(math.isclose(a,b,rel_tol=1e-9) for a,b in zip(f([1,2]),[1/3,2/3]))
=== global state
db={}
def put(k,v): db[k]=v
def get(k): return db[k]
---
put('a',1)
assert get('a')==1 and db=={'a':1}
=== time
import time
def f():
 time.sleep(0.05)
 return 1
---
import time
t=time.monotonic()
assert f()==1 and time.monotonic()-t>=0.05
=== star import name
__all__=['f']
def f(): return 1
def g(): return 2
---
assert f()==1
=== counter ops
from collections import Counter
def f(a,b): return Counter(a)-Counter(b)
---
from collections import Counter
assert f('aab','a')==Counter('ab')
assert f('aab','a').most_common(1)==[('a',1)]
assert isinstance(f('a','b'),dict)
=== none compare
class N:
 pass
def f(): return N()
---
assert f() != None
assert f() is not None
assert f()
=== docstring
def f():
 'doc'
 return f.__doc__
---
assert f()=='doc' and f.__doc__=='doc'
=== callable
def f(n): return lambda x: x+n
---
g=f(2)
assert callable(g) and g(1)==3 and list(map(f(1),[1,2]))==[2,3]
=== sorted key result
def key(p): return p[1]
---
assert sorted([(1,2),(2,1)],key=key)==[(2,1),(1,2)]
assert max([(1,2),(2,1)],key=key)==(1,2)
"""

HUMANEVAL = r'''\
=== he helper class: total
class T:
    def __init__(self, v, l=None):
        self.v=v
        self.l=l

def build(xs):
    t=None
    for x in xs: t=T(x,t)
    return t

def total(t):
    """Sum."""
---
    s=0
    while isinstance(t,T):
        s+=t.v
        t=t.l
    return s
---
def check(candidate):
    assert candidate(build([1,2,3]))==6
    assert candidate(T(4))==4
=== he dataclass: inc
from dataclasses import dataclass
@dataclass
class P:
    x: int

def inc(p: P) -> P:
    """Inc."""
---
    return P(p.x+1)
---
def check(candidate):
    assert candidate(P(1))==P(2)
=== he enum: nxt
from enum import Enum
class C(Enum):
    A=1
    B=2

def nxt(c):
    """N."""
---
    return C.B if c is C.A else C.A
---
def check(candidate):
    assert candidate(C.A)==C.B and candidate(C.B) is C.A
=== he class entry: Acc
class Acc:
    """An account."""
---
    def __init__(self): self.b=0
    def add(self,n):
        if n<0: raise ValueError('neg')
        self.b+=n
        return self.b
---
def check(candidate):
    a=candidate()
    assert a.add(2)==2 and a.b==2
    try:
        a.add(-1)
        assert False
    except ValueError: pass
=== he const: f
LIMIT = 3

def f(x):
    """L."""
---
    return min(x,LIMIT)
---
def check(candidate):
    assert candidate(9)==LIMIT
=== he no check: f
def f(x):
    """L."""
---
    return x
---
assert f(1)==1
assert candidate(2)==2
=== he unittest: f
def f(x):
    """L."""
---
    return x
---
import unittest
class TestCases(unittest.TestCase):
    def test_1(self):
        self.assertEqual(f(1),1)
=== future: f
from __future__ import annotations
from typing import List
def f(x: List[int]) -> List[Foo]:
    """L."""
---
    return x
---
def check(candidate):
    assert candidate([1])==[1]
=== he type hints: cheapest
from typing import List, Optional, Tuple


class Item:
    name: str
    price: float
    def __init__(self, name: str, price: float):
        self.name = name
        self.price = price


def cheapest(items: List[Item]) -> Optional[Item]:
    """The cheapest."""
---
    return min(items, key=lambda i: i.price) if items else None
---
def check(candidate):
    a, b = Item('a', 2.0), Item('b', 1.0)
    assert candidate([a, b]) is b
    assert candidate([a, b]).name == 'b'
    assert candidate([]) is None
=== he class stub: Stack
class Stack:
    """A stack."""
    def __init__(self):
        self.items = []

    def push(self, x):
        self.items.append(x)

    def pop(self):
        """Remove and return the last."""
---
        return self.items.pop()
---
def check(candidate):
    s = candidate()
    s.push(1)
    s.push(2)
    assert s.pop() == 2 and s.items == [1]
=== he asserts msg: f
def f(x):
    """L."""
---
    return x
---


METADATA = {}


def check(candidate):
    assert candidate(1) == 1, 'message'
    assert True, "This prints if this assert fails 2 (also good for debugging!)"
=== he candidate nested: add
def add(a, b):
    """L."""
---
    return a + b
---
def check(add):
    for i in range(50):
        assert add(i, 1) == i + 1
'''
